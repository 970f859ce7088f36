"""K of a type that was never measured here, as a detector that has come knows it from where it was."""

from slackline.core.time import FOREVER
from slackline.ordering.input import DerivedInput, Evidence
from slackline.ordering.watermark import SLACK


def test_a_supposed_delay_holds_the_watermark_back_at_once() -> None:
    input = DerivedInput("hit", 0, Evidence(policy=SLACK, margin=0))
    input.set_progress(90, 100)
    assert input.watermark == 100  # nothing is known of its delays
    input.assume_delay(30)
    assert (input.K, input.watermark) == (30, 70)


def test_the_first_measured_delay_takes_its_place_and_is_not_replaced() -> None:
    input = DerivedInput("hit", 0, Evidence(policy=SLACK, margin=0))
    input.assume_delay(30)
    input.note(80, 100)
    input.tick(100, 105)
    assert input.K == 25
    input.assume_delay(30)
    assert input.K == 25


def test_a_type_that_has_ended_delays_no_other_again() -> None:
    input = DerivedInput("hit", 0, Evidence(policy=SLACK, margin=0))
    input.set_progress(FOREVER, 100)
    input.assume_delay(30)
    assert input.watermark == FOREVER
