"""What a reader finds in a user's file and does not use is stated by name, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tailback import calibrate, simulate
from tailback.calibration.file import load as load_calibration
from tailback.errors import TailbackError
from tailback.evidence.jobs import read_jobs
from tailback.fabric.readers import read_fabric
from tailback.io.delimited import not_used, unused_keys
from tailback.port_counters.readers import read_counters
from tailback.sources.source import Source, load_scenario
from tailback.telemetry.captured import read_contexts
from tailback.telemetry.samples_csv import read_samples
from tailback.traffic.readers import read_trace
from tests.factories import chakra_traces
from tests.factories.benchmark_outputs import osu_bw
from tests.factories.fabric_files import SAMPLES
from tests.factories.kineto_traces import collective, document
from tests.factories.user_inputs import INPUTS


def column(text: str, delimiter: str = ",") -> str:
    """A table with one more column, ``surprise``."""
    first, *lines = text.rstrip("\n").split("\n")
    rows = [f"{line}{delimiter}7" for line in lines]
    return "\n".join([f"{first}{delimiter}surprise", *rows]) + "\n"


def added(line: str) -> Callable[[str], str]:
    """A text with one more line."""
    return lambda text: text + line


def of_fabric(path: Path) -> Sequence[str]:
    return read_fabric(path, cable_gbps=SAMPLES[path.stem].cable_gbps).notes


def of_counters(path: Path) -> Sequence[str]:
    return not_used(read_counters(path).unknown)


CASES: dict[str, tuple[Callable[[str], str], Callable[[Path], Sequence[str]]]] = {
    "counters ethernet-csv": (column, of_counters),
    "counters recorded-infiniband": (column, of_counters),
    "counters ldms-csv ibnet": (column, of_counters),
    "counters perfquery": (added("surprise:......5\n"), of_counters),
    "counters prometheus": (
        lambda text: text.replace(
            '"result":[', '"result":[{"metric":{"__name__":"surprise"},"values":[[1,"1"]]},'
        ),
        of_counters,
    ),
    "fabric edge-list": (column, of_fabric),
    "fabric slurm-topology-yaml": (
        lambda text: text.replace("  cluster_default", "  surprise: 1\n  cluster_default"),
        of_fabric,
    ),
    "fabric lldp": (
        lambda text: text.replace('"port": {', '"surprise": 1, "port": {'),
        of_fabric,
    ),
    "fabric ufm": (lambda text: text.replace('"guid"', '"surprise": 1, "guid"'), of_fabric),
    "jobs csv": (column, lambda path: read_jobs(path).notes),
    "jobs qstat": (
        lambda text: text.replace("    etime", "    surprise = 1\n    etime"),
        lambda path: read_jobs(path).notes,
    ),
    "jobs sacct-json": (
        lambda text: text.replace('"job_id"', '"surprise": 1, "job_id"'),
        lambda path: read_jobs(path).notes,
    ),
    "jobs squeue-json": (
        lambda text: text.replace('"job_id"', '"surprise": 1, "job_id"'),
        lambda path: read_jobs(path).notes,
    ),
    "jobs sacct-parsable": (
        lambda text: column(text, "|"),
        lambda path: read_jobs(path).notes,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_unused_field_is_named_once(name: str, tmp_path: Path) -> None:
    change, notes = CASES[name]
    INPUTS[name].write(tmp_path)
    path = (tmp_path / "input.txt").rename(tmp_path / f"{name.split(' ')[1]}.txt")
    text = path.read_text()
    assert not any("surprise" in note for note in notes(path))
    path.write_text(change(text))
    assert change(text) != text
    assert sum("surprise" in note for note in notes(path)) == 1


def test_unused_arguments_of_nccl_kernels_are_named_once(tmp_path: Path) -> None:
    for rank in range(2):
        events = [
            collective(10, 40, "allreduce", 1000, [0, 1], surprise=number) for number in (1, 2)
        ]
        text = json.dumps(document(rank, 2, events))
        (tmp_path / f"{rank}.pt.trace.json").write_text(text)
    notes = [note for note in read_trace(tmp_path).notes if "surprise" in note]
    assert notes == ["arguments of NCCL's kernels not used: surprise"]


def test_note_on_many_keys_counts_the_unnamed() -> None:
    unused = unused_keys([{"a": 1, "b": 2}, {"b": 1, "c": 1, "d": 1}, "text"], {"b"})
    assert not_used(unused, "keys", 2) == ["keys not used: a, c and 1 more"]


def test_unused_columns_of_samples_and_contexts_are_named(tmp_path: Path) -> None:
    (tmp_path / "edges").write_text(SAMPLES["edge-list"].text)
    fabric = read_fabric(tmp_path / "edges")
    samples = "src,dst,link,congested,hops,samples,surprise\nn1,n3,0,0,2,5,7\n"
    (tmp_path / "samples.csv").write_text(samples)
    assert read_samples(tmp_path / "samples.csv", fabric).notes == ["columns not used: surprise"]
    folder = tmp_path / "contexts"
    folder.mkdir()
    (folder / "addresses.csv").write_text("address,node,surprise\n1,n1,7\n")
    (folder / "calls.csv").write_text("call,surprise\nMPI_Send,7\n")
    assert read_contexts(folder, fabric).notes == [
        "addresses.csv: columns not used: surprise",
        "calls.csv: columns not used: surprise",
    ]


@pytest.mark.parametrize(("adapters", "stated"), [((0, 0), False), ((0, 1), True)])
def test_adapters_of_a_schedule_are_stated(
    adapters: tuple[int, int], stated: bool, tmp_path: Path
) -> None:
    sends, receives = (
        "\n".join(f"{call} 8b {way} tag {nic} nic {nic}" for nic in adapters)
        for call, way in (("send", "to 1"), ("recv", "from 0"))
    )
    file = tmp_path / "two.goal"
    file.write_text(f"num_ranks 2\nrank 0 {{\n{sends}\n}}\nrank 1 {{\n{receives}\n}}\n")
    notes = [note for note in read_trace(file).notes if "nic not used" in note]
    assert notes == (
        [
            "nic not used: ranks send by up to 2 adapters in the schedule; here all messages of a "
            "rank pass through one, which takes longer"
        ]
        if stated
        else []
    )


def test_engine_of_the_fabric_option_is_used(tmp_path: Path) -> None:
    network = '[fabric]\npreset = "tapered"\n[engine]\nrouting = "deterministic"\n'
    (tmp_path / "net.toml").write_text(network)
    (tmp_path / "job.toml").write_text(
        '[fabric]\npreset = "tapered"\n[engine]\nrouting = "adaptive"\npacket = "512 B"\n'
        '[[job]]\npattern = { kind = "ring", ranks = 4, size = "64 KiB" }\n'
    )
    changed = load_scenario(tmp_path / "job.toml", fabric=tmp_path / "net.toml").engine
    assert changed.routing == "deterministic"
    assert changed.packet == 512
    unchanged = load_scenario(tmp_path / "job.toml", fabric="tapered").engine
    assert unchanged.routing == "adaptive"


def test_unused_sections_and_columns_are_named(tmp_path: Path) -> None:
    ring = '[[job]]\npattern = { kind = "ring", ranks = 4, size = "64 KiB" }\n'
    network = '[fabric]\npreset = "tapered"\n'
    (tmp_path / "job.toml").write_text(network + ring)
    (tmp_path / "net.toml").write_text(f"seed = 3\n{network}[telemetry]\none_in = 3\n{ring}")
    (tmp_path / "ranks.csv").write_text("rank,host,core\n0,0,7\n1,1,7\n2,2,7\n3,3,7\n")
    options = {"fabric": tmp_path / "net.toml", "rankfile": tmp_path / "ranks.csv"}
    expected = {
        "fabric": "net.toml: sections and keys not used: seed, telemetry, job",
        "rankfile": "ranks.csv: columns not used: core",
    }
    for name, file in options.items():
        source = Source.of(tmp_path / "job.toml", **{name: file})  # type: ignore[arg-type]
        assert source.notes == (expected[name],)
    (tmp_path / "net.toml").write_text(network)
    run = simulate(tmp_path / "job.toml", fabric=options["fabric"])
    assert not any("not used" in note for note in run.notes)
    (tmp_path / "net.toml").write_text(network + ring)
    run = simulate(tmp_path / "job.toml", fabric=options["fabric"])
    assert run.notes.count("net.toml: sections and keys not used: job") == 1


def test_unused_parts_of_calibration_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "net.toml").write_text(
        '[fabric]\npreset = "tapered"\n[engine]\npacket = "1 KiB"\n'
        '[[job]]\npattern = { kind = "ring", size = "1 KiB" }\n'
    )
    (tmp_path / "bw.txt").write_text(osu_bw())
    (tmp_path / "ranks.csv").write_text("rank,host,core\n0,n0000,7\n1,n0001,7\n")
    options = {"fabric": tmp_path / "net.toml", "rankfile": tmp_path / "ranks.csv"}
    assert calibrate(tmp_path / "bw.txt", **options).notes[:2] == [
        "net.toml: sections and keys not used: engine, job",
        "ranks.csv: columns not used: core",
    ]


@pytest.mark.parametrize("remedy", ["", "adaptive"])
def test_the_used_part_of_a_run_is_named(remedy: str, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(
        '[fabric]\npreset = "tapered"\n'
        '[[job]]\npattern = { kind = "ring", ranks = 4, size = "64 KiB" }\n'
    )
    run = simulate(tmp_path / "job.toml")
    summary = {**run.summary, **({"remedy": remedy} if remedy else {})}
    replace(run, summary=summary).write(tmp_path / "run")
    source = Source.of(tmp_path / "job.toml", fabric=tmp_path / "run")
    end = f", without its remedy '{remedy}'" if remedy else ""
    assert source.notes == (
        f"run: only [fabric] and [engine] of the scenario of this run are used{end}",
    )


def test_unused_attributes_of_chakra_nodes_are_named_once(tmp_path: Path) -> None:
    attributes = {"rf_id": 3, "surprise": 1, "involved_dim": 2}
    nodes = [chakra_traces.node(number, 4, duration=3, **attributes) for number in (0, 1)]
    folder = chakra_traces.write(tmp_path, nodes, nodes)
    notes = [note for note in read_trace(folder).notes if "not used" in note]
    assert notes == ["attributes of nodes not used: involved_dim, surprise"]


def test_names_that_may_change_an_answer_come_first() -> None:
    names = ["comment", "rx_pause", "owner", "port_rate", "PortRcvErrors", "site"]
    assert not_used(names, "columns", 3) == [
        "columns not used: rx_pause, port_rate, PortRcvErrors and 3 more"
    ]


def test_section_without_meaning_in_a_calibration_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "machine.toml"
    file.write_text('[engine]\nlocal_delay = "500 ns"\n[telemetry]\none_in = 3\n')
    with pytest.raises(TailbackError, match="has no meaning") as refused:
        load_calibration(file)
    assert refused.value.place == "[telemetry]"


def test_long_lists_and_hostile_names_are_shortened() -> None:
    assert not_used([]) == []
    (note,) = not_used(["\x1b[31m", *(f"c{number}" for number in range(20))])
    assert "\x1b" not in note and note.endswith("and 9 more")
