"""A probe before a compile: where there is room, and whether the optimizer can reach it."""

from ragbench.experiments.probe.asking import probe_program as probe_program
