import subprocess
import sys


def test_the_command_line_works_without_spark():
    """`slackline study` must run where neither pyspark nor Java is installed."""
    script = (
        "import sys; sys.modules['pyspark'] = None; import slackline.cli; "
        "print(len(slackline.cli.app.registered_commands))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 2
