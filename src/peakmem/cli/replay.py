"""`peakmem replay`: what would the allocator have done under other settings, or on another card?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.status import Status

    from peakmem.allocator.replay import Floor, Replayed
    from peakmem.cli.room import Room


@click.command(
    epilog="Exit codes: 0 done (with --gpu or --memory: it fits under one of the settings), 1 it fits under none, "
    "2 bad input."
)
@click.argument("trace", metavar="TRACE|SNAPSHOT")
@click.option(
    "--alloc-conf",
    "alloc_confs",
    multiple=True,
    metavar="STR",
    help="Settings to replay under; may be given several times, '' are the defaults. [those of the trace]",
)
@click.option("--gpu", metavar="NAME", help="The card to fit into: 4090, a100-80, ... (peakmem gpus lists them).")
@click.option("--memory", metavar="SIZE", help="Total memory of the card instead, such as 24GiB.")
@click.option("--floor", is_flag=True, help="Find the smallest capacity that works under each, too.")
@click.option("--device", type=int, metavar="N", help="Which device of the trace. [the one that held most]")
@click.option("--python", metavar="PATH", help="The interpreter whose PyTorch replays. [the one `python` means]")
@click.option("--json", "json_target", metavar="FILE", help="Write JSON; - is standard output.")
@click.option("--force", is_flag=True, help="Write over a file that exists.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Replay recorded requests through the real allocator, under other settings.

    \b
    peakmem replay snapshot.pickle --alloc-conf expandable_segments:True
    peakmem replay run.peakmem --gpu 4090 --alloc-conf '' --alloc-conf max_split_size_mb:128

    TRACE is what `peakmem run --save` wrote, SNAPSHOT what torch.cuda.memory._dump_snapshot() wrote on a real card. The
    allocator is that of your own PyTorch, on a virtual GPU; only the requests are taken from the trace.
    """
    ctx.exit(_replay(**options))


def _replay(
    trace: str,
    alloc_confs: tuple[str, ...],
    gpu: str | None,
    memory: str | None,
    floor: bool,
    device: int | None,
    python: str | None,
    json_target: str | None,
    force: bool,
) -> int:
    from rich.console import Console

    from peakmem.allocator.replay import Replayer
    from peakmem.cli.plain import text_console
    from peakmem.cli.room import room_of
    from peakmem.errors import ExitCode
    from peakmem.files import check_writable, write_json
    from peakmem.report.replay_json import document, replayed_as_json
    from peakmem.trace.load import load_torch_trace
    from peakmem.vgpu.probe import probe

    if json_target is not None:
        check_writable(json_target, force=force)
    loaded = load_torch_trace(trace, what="peakmem replay")
    facts = probe(python)
    room = room_of(gpu, memory, cuda=facts.cuda)
    confs = tuple(dict.fromkeys(alloc_confs)) or (loaded.meta.alloc_conf,)
    status = Console(stderr=True).status("replaying")
    with Replayer(loaded, facts=facts, card=room.card, device=device) as replayer, _on_terminal(status):
        for conf in confs:
            replayer.settings(conf)  # a refused one ends it before the first replay
        replays = [replayer.replay(conf, capacity=room.capacity) for conf in confs]
        floors = [replayer.floor(conf) for conf in confs] if floor else []
        notes = list(replayer.requests.notes)
        if any(replayer.settings(conf).backend != "native" for conf in confs):
            notes.append(
                "backend:cudaMallocAsync leaves caching to the driver, whose rules are not published: what it reserves "
                "beyond the blocks in use is not known"
            )
    if json_target is not None:
        results = [
            replayed_as_json(replayed, floors[index] if floors else None) for index, replayed in enumerate(replays)
        ]
        write_json(
            document("replay", results, trace=trace, capacity=room.capacity, notes=notes), json_target, force=force
        )
    if json_target != "-":
        _print(text_console(), replays, floors, room, notes)
    return ExitCode.DOES_NOT_FIT if all(replayed.ran_out for replayed in replays) else ExitCode.FITS


def _on_terminal(status: Status) -> AbstractContextManager[object]:
    """A spinner; nothing where standard error is no terminal."""
    import contextlib

    return status if status.console.is_terminal else contextlib.nullcontext()


def _print(console: Any, replays: list[Replayed], floors: list[Floor], room: Room, notes: list[str]) -> None:
    from rich.text import Text

    from peakmem.report.replays import print_replays
    from peakmem.units import format_size

    requests = replays[0].requests
    where = f"; there is room for {format_size(room.capacity)}: {room.why}" if room.capacity else ""
    console.print(Text(f"{requests:,} requests through the allocator of torch {replays[0].torch}{where}", style="dim"))
    console.print()
    print_replays(replays, console, floors=floors, capacity=room.capacity)
    for note in notes:
        console.print(Text(f"note: {note}", style="dim"))
