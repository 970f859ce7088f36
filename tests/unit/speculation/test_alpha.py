"""Who speculates how much."""

import slackline as sl
from slackline.speculation.alpha import LEAST_SHARE, CostBenefit, assign_shares


def weighed(gained: dict[str, int], spent: dict[str, int]) -> dict[str, float]:
    edges = [("Low", "a", "low"), ("High", "low", "high"), ("Leaf", "a", "leaf"), ("Other", "a", "other")]
    hierarchy = sl.Hierarchy([_detector(*edge) for edge in edges], clock="a")
    accounts = {name: CostBenefit() for name in hierarchy.names}
    for name, account in accounts.items():
        account.gain(gained.get(name, 0))
        account.spend(spent.get(name, 0))
    assign_shares(accounts, hierarchy.below)
    return {name: account.share for name, account in accounts.items()}


def _detector(name: str, listens: str, publishes: str) -> sl.Detector:
    made = type(name, (sl.Detector,), {"on_event": lambda self, event: None})()
    made.listens, made.publishes = (listens,), (publishes,)
    return made


def test_of_two_costly_detectors_the_one_that_gains_more_per_row_speculates_more() -> None:
    shares = weighed({"Leaf": 100, "Other": 50}, {"Leaf": 1000, "Other": 1000})
    assert shares["Leaf"] == 1.0
    assert shares["Other"] == 0.5


def test_a_detector_that_costs_next_to_nothing_is_not_rationed() -> None:
    assert weighed({"Leaf": 100}, {"Leaf": 1000, "High": 10})["High"] == 1.0


def test_a_detector_that_leads_to_others_speculates_as_much_as_they_do() -> None:
    shares = weighed({"Leaf": 100}, {"Leaf": 1000, "Low": 1000, "High": 10})
    assert shares["Low"] == shares["High"] == 1.0


def test_no_detector_is_shut_out() -> None:
    assert weighed({"Leaf": 100}, {"Leaf": 1000, "Other": 1000})["Other"] == LEAST_SHARE


def test_alpha_of_a_share() -> None:
    whole, half = CostBenefit(), CostBenefit(share=0.5)
    assert [(whole.alpha(alpha), half.alpha(alpha)) for alpha in (0.25, 0.0, 1.0)] == [
        (0.25, 0.5),
        (0.0, 0.0),
        (1.0, 1.0),
    ]
