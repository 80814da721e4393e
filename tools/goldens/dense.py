"""Dense families beside Llama."""

from . import Fixture, rope, tiny

FIXTURES = {}
