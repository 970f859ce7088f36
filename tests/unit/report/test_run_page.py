import re

from slackline.report import Point, RunReport, RunSection, RunTable, Series, run_page


def section(**more):
    points = [Point(clk=1_000_000 * i, slack=40_000 + i, wait=20_000.5, buffered=i, late=0) for i in range(5)]
    return RunSection(title="Kicks", unit="us", series=[Series("PlayerHitsBall", points)], **more)


def test_the_page_holds_series_tables_and_facts():
    page = run_page(
        RunReport(
            "A run",
            sections=[
                section(
                    facts=[("471", "hits found")],
                    tables=[RunTable("Events", ["type", "count"], [["near", "712"], ["kick", "<b>"]])],
                    attribution="Data by somebody, CC BY-SA 4.0",
                )
            ],
        )
    )
    for part in (
        "PlayerHitsBall",
        "mean wait (ms)",
        "K (ms)",
        "buffered events",
        "hits found",
        "712",
        "somebody",
    ):
        assert part in page, part
    assert "&lt;b&gt;" in page
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)


def test_a_wait_that_is_unknown_leaves_a_gap():
    series = [Series("D", [Point(0, 5, None, 1), Point(1, 5, None, 1)])]
    assert "null" in run_page(RunReport("r", sections=[RunSection("s", series=series)]))


def test_a_section_without_points_has_no_plot():
    page = run_page(RunReport("r", sections=[RunSection("s", series=[Series("D", [])])]))
    assert "Plotly.newPlot(" not in page.split("</script>", 1)[1]
