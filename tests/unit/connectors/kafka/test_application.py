"""How a host on Kafka fares, as one set of figures."""

from slackline.connectors.kafka.application import merged
from slackline.runtime.numbers import Figures, Numbers


def test_the_figures_of_partitions_are_added_or_the_worst_of_them_counts() -> None:
    one = Numbers(
        keys=2, arrivals=10, outputs=5, late=1, late_share=0.1, late_target=0.01, wait_p50=3.0, wait_p99=9.0, K=7,
        buffered=4, quarantined={"late": 1}, detectors={"Sums": Figures(9, 1, 4, 7)},
    )  # fmt: skip
    two = Numbers(
        keys=1, arrivals=30, outputs=6, late_target=0.01, wait_p50=4.0, K=5, alpha=0.5, buffered=2,
        quarantined={"late": 2, "no key": 1}, detectors={"Sums": Figures(30, 0, 2, 5, 0.5)},
    )  # fmt: skip
    assert merged([one, two]) == Numbers(
        keys=3, arrivals=40, outputs=11, late=1, late_share=1 / 40, late_target=0.01, wait_p50=4.0, wait_p99=9.0, K=7,
        alpha=0.5, buffered=6, quarantined={"late": 3, "no key": 1}, detectors={"Sums": Figures(39, 1, 6, 7, 0.5)},
    )  # fmt: skip
    assert merged([one]) == one and merged([]) == Numbers()
