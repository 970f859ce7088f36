"""Payloads as JSON text."""

import datetime
import decimal
import json
from typing import Any

import numpy as np
import pytest

from slackline.core.payload import PayloadError, to_json

UTC = datetime.UTC


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (2**70, str(2**70)),
        (0.1, "0.1"),
        ("Zoë \n", '"Zoë \\n"'),
        (float("nan"), '"NaN"'),
        (float("inf"), '"Infinity"'),
        (float("-inf"), '"-Infinity"'),
        (b"\x00\xff", '"AP8="'),
        (np.int32(4), "4"),
        (np.float32(0.5), "0.5"),
        (np.float64("nan"), '"NaN"'),
        (np.longdouble(1.5), "1.5"),
        (np.array([0.5], dtype=np.longdouble), "[0.5]"),
        (np.bool_(True), "true"),
        (np.str_("x"), '"x"'),
        (np.arange(3), "[0,1,2]"),
        (np.array([1.0, np.inf]), '[1.0,"Infinity"]'),
        ((1, [2, {"b": 1, "a": (3,)}]), '[1,[2,{"a":[3],"b":1}]]'),
        ({7: "x", "y": 2}, '{"7":"x","y":2}'),
        (decimal.Decimal("1.10"), '"1.10"'),
        (datetime.datetime(2024, 5, 1, 12, tzinfo=UTC), '"2024-05-01T12:00:00+00:00"'),
        (datetime.date(2024, 5, 1), '"2024-05-01"'),
        (np.datetime64("2024-05-01T00:00:00.000000001", "ns"), '"2024-05-01T00:00:00.000000001"'),
    ],
    ids=repr,
)
def test_value_has_one_json_form(value: Any, text: str) -> None:
    assert to_json({"v": value}) == f'{{"v":{text}}}'
    json.loads(to_json({"v": value}), parse_constant=pytest.fail)


def test_order_of_fields_does_not_matter() -> None:
    assert to_json({"b": 1, "a": 2}) == to_json({"a": 2, "b": 1})


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({1, 2}, "hit.v is a builtins.set"),
        (..., "builtins.ellipsis"),
        ([1, {"w": 1j}], r"hit.v\[1\].w"),
        ("\ud800", "hit"),
        (np.clongdouble(1j), "hit.v"),
    ],
    ids=repr,
)
def test_other_value_is_an_error_that_names_the_field(value: Any, where: str) -> None:
    with pytest.raises(PayloadError, match=where):
        to_json({"v": value}, "hit")
