"""Trains a small network by DistributedDataParallel, as any script for torchrun does.

It goes on from the newest complete checkpoint, so that a restart loses little. Nothing in it knows
of this project.
"""

import argparse
import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def newest(directory: Path) -> Path | None:
    """Return the newest checkpoint that was written to its end."""
    done = [each.parent for each in directory.glob("step-*/complete")]
    return max(done, key=lambda each: int(each.name.removeprefix("step-")), default=None)


def save(directory: Path, step: int, state: dict[str, object]) -> None:
    """Write a checkpoint, and last of all the file that says so."""
    folder = directory / f"step-{step}"
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(state, folder / "state.pt")
    (folder / "complete").touch()


def main() -> None:
    """Train until the last step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--directory", type=Path, default=Path("/shared/checkpoints/ddp"))
    options = parser.parse_args()

    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(minutes=10))
    rank, world = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(1)
    network = torch.nn.Sequential(
        torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)
    ).to(device)
    target = torch.randn(16, 1, device=device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    first = 0
    if found := newest(options.directory):
        state = torch.load(found / "state.pt", map_location=device)
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    print(f"rank {rank} of {world} starts at step {first}", flush=True)

    torch.manual_seed(1000 * first + rank)
    for step in range(first + 1, options.steps + 1):
        batch = torch.randn(64, 16, device=device)
        loss = torch.nn.functional.mse_loss(model(batch), batch @ target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step}/{options.steps}, loss: {loss.item():.4f}", flush=True)
        if rank == 0 and (step % options.save_every == 0 or step == options.steps):
            state = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
            save(options.directory, step, {**state, "step": step})
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
