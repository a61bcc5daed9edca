"""Records what engines other than MLX make of the same numbers, for the tests of `make real`.

    uv run --no-project --with xllamacpp==2026.10.11549 --with gguf==0.19.0 \
        python tests/real/record_references.py smollm2 FILE.gguf
    .venv/bin/python tests/real/record_references.py minilm FOLDER

llama.cpp computes in float32 (weights, keys and values), since it rounds activations to 8 bits beside
quantized weights. MiniLM is computed by numpy in float64.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHATS = [
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "Wie heißt die Hauptstadt von Österreich? Antworte auf Deutsch.",
    "中国的首都是哪里？",  # noqa: RUF001 (it is Chinese)
    "ما هي عاصمة مصر؟",
    "Reply with three emoji for a birthday party 🎂🎉👩‍👩‍👧",
    "Write a Python function that adds two numbers.\n\n```python\ndef add(a, b):\n\t",
    "Count from 1 to 12, with commas.",
    "  Which   word\tis\nmissing: the cat sat on the ___?  ",
    "Translate 'good morning' into French, naïve façade, Ångström.",
    "What is 17 + 25?",
    "Explain in two sentences why the sky is blue.",
]
TEXTS = [
    'Ein Café in Köln heißt "Zur schönen Aussicht". Die Straße davor',
    "The capital of France is Paris. The capital of Japan is",
    "Der Vogel fliegt über die Brücke, und die Kinder",
]
PASSAGE = "The red box has number {0}, the blue one has number {1}, and the lid of it weighs {2} grams. "
"""Repeated until a prompt is longer than Gemma's window of 512 tokens."""


def to_float32(source: Path, path: Path) -> Path:
    """Write a GGUF file again with all tensors in float32."""
    import gguf

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name not in (
            "general.architecture",
            "general.file_type",
        ):
            items = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=items)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        value = np.asarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float32)
        writer.add_tensor(tensor.name, value.reshape([int(size) for size in reversed(tensor.shape)]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class Llama:
    """A llama.cpp server in this process."""

    def __init__(self, path: Path) -> None:
        import xllamacpp  # type: ignore[import-not-found]

        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_ctx, parameters.n_parallel = 2048, 1
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
        parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        parameters.warmup = False
        self._server = xllamacpp.Server(parameters)

    def post(self, route: str, **body: Any) -> Any:
        """Return the answer of a route."""
        address, headers = self._server.listening_address + route, {"Content-Type": "application/json"}
        request = urllib.request.Request(address, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def tokens(self, text: str, *, begin: bool) -> list[int]:
        """Return the ids of a prompt's tokens, with the markers in it."""
        ids: list[int] = self.post("/tokenize", content=text, parse_special=True, add_special=begin)["tokens"]
        return ids

    def greedy(self, prompt: list[int], length: int) -> list[list[Any]]:
        """Return id and log-probability of the first tokens."""
        answer = self.post(
            "/completion",
            prompt=prompt,
            n_predict=length,
            n_probs=1,
            temperature=0,
            return_tokens=True,
            cache_prompt=False,
        )
        told = list(answer["completion_probabilities"])
        found = []
        for place, token in enumerate(answer["tokens"]):
            # It tells nothing of the first tokens of a character.
            is_told = bool(told) and told[0]["id"] == token
            before = prompt + answer["tokens"][:place]
            logprob = told.pop(0)["logprob"] if is_told else self.logprob(before, token)
            found.append([token, round(logprob, 5)])
        return found

    def logprob(self, prompt: list[int], token: int) -> float:
        """Return the log-probability of a token after a prompt, whichever is chosen: always a line's end."""
        (end, *_) = self.tokens("\n", begin=False)
        bias = [[end, 1000.0]]
        answer = self.post("/completion", prompt=prompt, n_predict=1, n_probs=20_000, logit_bias=bias)
        choices = answer["completion_probabilities"][0]["top_logprobs"]
        return float(next(item["logprob"] for item in choices if item["id"] == token))

    def logprobs(self, prompt: list[int]) -> list[float]:
        """Return the log-probability of each token of a prompt but the first."""
        return [round(self.logprob(prompt[:end], prompt[end]), 5) for end in range(1, len(prompt))]


def record_smollm2(llama: Llama) -> Any:
    """Return the first 40 greedy tokens of each chat."""
    recorded = []
    for question in CHATS:
        text = llama.post("/apply-template", messages=[{"role": "user", "content": question}])["prompt"]
        prompt = llama.tokens(text, begin=False)
        recorded.append({"question": question, "prompt": prompt, "answer": llama.greedy(prompt, 40)})
    return recorded


def record_gemma3(llama: Llama) -> Any:
    """Return tokens and log-probabilities of texts, and the answer to one longer than the window."""
    texts = []
    for text in TEXTS:
        prompt = llama.tokens(text, begin=True)
        texts.append(
            {
                "text": text,
                "prompt": prompt,
                "logprobs": llama.logprobs(prompt),
                "answer": llama.greedy(prompt, 20),
            }
        )
    text = "".join(PASSAGE.format(100 + number, 300 - number, 2 * number) for number in range(24))
    prompt = llama.tokens(text, begin=True)
    return {"texts": texts, "long": {"text": text, "prompt": prompt, "answer": llama.greedy(prompt, 20)}}


def embed(folder: Path, texts: list[str]) -> NDArray[np.float64]:
    """Return the vectors that BERT's forward pass, a mean and a division by the length make in float64."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    weights = {
        name: value.astype(np.float64) for name, value in load_file(folder / "model.safetensors").items()
    }
    config = json.loads((folder / "config.json").read_text())
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    heads = config["num_attention_heads"]
    erf = np.vectorize(math.erf)

    def dense(x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + config["layer_norm_eps"])
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def split(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return x.reshape(len(x), heads, -1).swapaxes(0, 1)

    vectors = []
    for text in texts:
        ids = tokenizer.encode(text).ids
        x = weights["embeddings.word_embeddings.weight"][ids]
        x = x + weights["embeddings.position_embeddings.weight"][: len(ids)]
        x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in range(config["num_hidden_layers"]):
            name = f"encoder.layer.{layer}"
            q, k, v = (split(dense(x, f"{name}.attention.self.{part}")) for part in ("query", "key", "value"))
            scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1])
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            mixed = (scores / scores.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(x.shape)
            x = norm(x + dense(mixed, f"{name}.attention.output.dense"), f"{name}.attention.output.LayerNorm")
            wide = dense(x, f"{name}.intermediate.dense")
            wide = wide * (1 + erf(wide / math.sqrt(2))) / 2
            x = norm(x + dense(wide, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        mean = x.mean(0)
        vectors.append(mean / np.linalg.norm(mean))
    return np.stack(vectors)


def record_minilm(folder: Path, pairs: list[dict[str, Any]]) -> Any:
    """Return 30 pairs with their cosines, and 16 numbers of each sentence's vector."""
    vectors = embed(folder, [text for pair in pairs for text in pair["sentences"]])
    for index, pair in enumerate(pairs):
        both = vectors[2 * index : 2 * index + 2]
        pair["cosine"] = round(float(both[0] @ both[1]), 7)
        pair["starts"] = [[round(float(number), 7) for number in vector[:16]] for vector in both]
    return pairs


def main() -> None:
    """Print the record of one model: its name, then its GGUF file or its folder."""
    name, path = sys.argv[1], Path(sys.argv[2])
    if name == "minilm":
        pairs = json.loads(Path(__file__).with_name("minilm.json").read_text(encoding="utf-8"))
        recorded = record_minilm(path, pairs)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            llama = Llama(to_float32(path, Path(scratch, "float32.gguf")))
            recorded = {"smollm2": record_smollm2, "gemma3": record_gemma3}[name](llama)
            del llama
    lines = json.dumps(recorded, ensure_ascii=False)
    Path(__file__).with_name(f"{name}.json").write_text(lines + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
