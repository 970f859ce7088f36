"""K of a type that was never measured here, as a detector that has come knows it from where it was."""

from slackline.ordering.constants import FOREVER, SLACK
from slackline.ordering.input import DerivedInput, Evidence


def test_a_supposed_delay_holds_the_watermark_back_at_once() -> None:
    channel = DerivedInput("hit", 0, Evidence(policy=SLACK, margin=0))
    channel.progress(90, 100)
    assert channel.watermark == 100  # nothing is known of its delays
    channel.suppose(30)
    assert (channel.K, channel.watermark) == (30, 70)


def test_the_first_measured_delay_takes_its_place_and_is_not_replaced() -> None:
    channel = DerivedInput("hit", 0, Evidence(policy=SLACK, margin=0))
    channel.suppose(30)
    channel.note(80, 100)
    channel.tick(100, 105)
    assert channel.K == 25
    channel.suppose(30)
    assert channel.K == 25


def test_a_type_that_has_ended_holds_nobody_up_again() -> None:
    channel = DerivedInput("hit", 0, Evidence(policy=SLACK, margin=0))
    channel.progress(FOREVER, 100)
    channel.suppose(30)
    assert channel.watermark == FOREVER
