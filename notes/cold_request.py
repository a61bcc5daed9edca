"""Time of the first token of a cold model, over the library's own load and first token.

Both sides take turns in fresh processes, with the files in the page cache. Imports of the library do not
count, those of a server do. The model is of mlx-lm, or of mlx-vlm with `--image`:

    PYTHONPATH=.src python notes/cold_request.py MODEL_FOLDER [--image] [--pairs N]
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TEXT = "Tell me a story about a sailor who finds an island. " * 8
SIDE = 448
START_SECONDS = 60.0


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--image", action="store_true")
    arguments.add_argument("--pairs", type=int, default=5)
    arguments.add_argument("--library", action="store_true", help="measure the library in this process")
    given = arguments.parse_args()
    if given.library:
        print(library_with_image(given.folder) if given.image else library(given.folder))
        return
    ratios = []
    for pair in range(-1, given.pairs):
        sides = [from_server, from_library]
        took = {side: side(given.folder, given.image) for side in (sides if pair % 2 else reversed(sides))}
        if pair >= 0:
            ratios.append(took[from_server] / took[from_library])
            print(f"server {took[from_server]:.2f} s, library {took[from_library]:.2f} s", flush=True)
    low, high = min(ratios), max(ratios)
    print(f"server over library: {statistics.median(ratios):.3f} ({low:.3f}-{high:.3f}), {given.pairs} pairs")


def from_library(folder: Path, image: bool) -> float:
    """Return the seconds of a load and a first token in a process of its own."""
    command = [sys.executable, __file__, str(folder), "--library", *(["--image"] if image else [])]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def library(folder: Path) -> float:
    """Return the seconds that mlx-lm takes for the load and the first token."""
    import mlx_lm
    from mlx_lm.generate import stream_generate

    start = time.perf_counter()
    loaded = mlx_lm.load(str(folder))
    model, tokenizer = loaded[0], loaded[1]
    message = [{"role": "user", "content": TEXT}]
    prompt = tokenizer.apply_chat_template(message, add_generation_prompt=True)
    next(iter(stream_generate(model, tokenizer, prompt, max_tokens=2)))
    return time.perf_counter() - start


def library_with_image(folder: Path) -> float:
    """Return the seconds that mlx-vlm takes for the load, an image and the first token."""
    from mlx_vlm.generate import stream_generate
    from mlx_vlm.prompt_utils import apply_chat_template
    from mlx_vlm.utils import load

    start = time.perf_counter()
    model, processor = load(str(folder))
    prompt = apply_chat_template(processor, model.config, TEXT, num_images=1)
    answer = stream_generate(model, processor, str(prompt), [url_of_picture()], max_tokens=2)
    next(iter(answer))
    return time.perf_counter() - start


def from_server(folder: Path, image: bool) -> float:
    """Return the seconds from a request to a server without loaded models to the first token."""
    with server(folder) as address:
        content = [{"type": "text", "text": TEXT}]
        if image:
            content.append({"type": "image_url", "image_url": {"url": url_of_picture()}})  # type: ignore[dict-item]
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 2, "stream": True}
        data = json.dumps({**body, "model": folder.name, "logprobs": True}).encode()
        request = urllib.request.Request(
            f"{address}/v1/chat/completions", data, {"content-type": "application/json"}
        )
        start = time.perf_counter()
        with urllib.request.urlopen(request) as answer:
            for line in answer:
                chunk = json.loads(line[6:]) if line.startswith(b"data: {") else {}
                if any(choice.get("logprobs") for choice in chunk.get("choices", ())):
                    return time.perf_counter() - start
    raise RuntimeError("no token came")


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Start a server on a free port; yield its address once it is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    greenroom = str(Path(sys.executable).with_name("greenroom"))
    command = [greenroom, "serve", str(folder), "--port", str(port), "--db", ":memory:"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address, end = f"http://127.0.0.1:{port}", time.monotonic() + START_SECONDS
    try:
        while not is_ready(address):
            if time.monotonic() > end or process.poll() is not None:
                raise RuntimeError("the server did not start")
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()


def is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/readyz", timeout=1):
            return True
    except OSError:
        return False


def url_of_picture() -> str:
    """Return a `data:` URL of a PNG of `SIDE` x `SIDE` pixels."""
    from PIL import Image

    encoded = io.BytesIO()
    Image.linear_gradient("L").resize((SIDE, SIDE)).convert("RGB").save(encoded, "PNG")
    return "data:image/png;base64," + base64.b64encode(encoded.getvalue()).decode()


if __name__ == "__main__":
    main()
