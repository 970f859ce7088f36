"""A match from tracking data: one position per player, at any rate, with a mapping of its objects."""

from __future__ import annotations

from slackline_soccer.model.field import Field
from slackline_soccer.model.match import Match
from slackline_soccer.recordings.recording import MatchRecording
from slackline_soccer.tracking.files import File
from slackline_soccer.tracking.mapping import Mapping
from slackline_soccer.tracking.tracks import open_tracks


def open_tracked(file: File, mapping: Mapping) -> MatchRecording:
    """Tracking data as a recording: goals stand in the middle of the ends of its ground."""
    tracks = open_tracks(file, mapping)
    match = Match(
        Field.on(tracks.ground),
        mapping.sensors,
        tracks.periods,
        ball_rate=tracks.ball_rate,
        player_rate=tracks.player_rate,
        name=mapping.name,
    )
    return MatchRecording(
        file.path,
        "tracking data",
        match,
        lambda recording: tracks.tables(recording.set_aside, recording.mark),
        origin=tracks.reader.time.origin,
        notes=tracks.notes,
    )
