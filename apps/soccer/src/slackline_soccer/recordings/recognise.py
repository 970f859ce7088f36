"""From a path to a recording: the format is recognised by what is there."""

from __future__ import annotations

from pathlib import Path

from slackline import ConfigError
from slackline_soccer.recordings.debs import is_debs, open_debs
from slackline_soccer.recordings.recording import MatchRecording
from slackline_soccer.recordings.simulated import is_simulated, open_simulated
from slackline_soccer.recordings.tracked import open_tracked
from slackline_soccer.tracking.files import look_at
from slackline_soccer.tracking.mapping import Mapping, load_mapping
from slackline_soccer.tracking.set_aside import RecordingError
from slackline_soccer.tracking.tracks import COLUMNS

UNDERSTOOD = (
    "Understood are: raw DEBS 2013 positions (CSV of sid, ts, x, y, z, |v|, |a|, vx, vy, vz, ax, ay, az, also .gz); "
    "a folder made by `slackline simulate match`; and tracking data (CSV or Parquet with ts, object, x, y and maybe z) "
    "with a mapping of its objects."
)


def open_recording(path: Path | str, mapping: Mapping | Path | str | None = None) -> MatchRecording:
    """The recording at ``path``, whichever of the formats it has; tracking data needs a mapping (or its file)."""
    path = Path(path)
    if not path.exists():
        raise RecordingError(f"there is no {path}.")
    if path.is_dir():
        if not is_simulated(path):
            raise ConfigError(f"{path} is a folder without match.json and positions. {UNDERSTOOD}")
        return _without_mapping(open_simulated(path), mapping)
    file = look_at(path)
    if is_debs(file):
        return _without_mapping(open_debs(file), mapping)
    if mapping is not None:
        return open_tracked(file, mapping if isinstance(mapping, Mapping) else load_mapping(mapping))
    if set(COLUMNS) <= set(file.names):
        raise ConfigError(
            f"{path.name} is tracking data; give a mapping that says which object is the ball and which is whose "
            f"player: a CSV with object, role, team, name, or a JSON file."
        )
    shown = ", ".join(file.names[:14]) if file.header else f"{len(file.names)} numbers without a header"
    raise ConfigError(f"cannot tell what {path.name} is; it has {shown}. {UNDERSTOOD}")


def _without_mapping(recording: MatchRecording, mapping: object) -> MatchRecording:
    if mapping is not None:
        raise ConfigError(
            f"{recording.path.name} is a {recording.format} recording, which knows who is who; leave the mapping out."
        )
    return recording
