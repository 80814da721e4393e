"""Families whose attention, rotation or norms differ."""

from . import Fixture, rope, tiny

FIXTURES = {}
