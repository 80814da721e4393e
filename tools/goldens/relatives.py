"""Families that are near others: a norm less, other names, windows in some layers, other tables of positions."""

from . import Fixture, rope, tiny

FIXTURES = {
    # Another activation than any published BitNet has.
    "bitnet-gelu": Fixture(
        "bitnet",
        27,
        tiny(hidden_size=64, hidden_act="gelu", rope_parameters=rope(500000.0)),
        config_class="BitNetConfig",
    ),
}
