"""The adapter of a reranker: queries and documents in, rows of tokens out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from greenroom.engine.catalog.files.json_files import read_json_object
from greenroom.engine.catalog.files.load_failures import named_failures
from greenroom.engine.catalog.files.regular_files import check_folder
from greenroom.engine.catalog.files.tokenizer_files import check_tokenizer_files
from greenroom.engine.encoding.rerank.cross_encoder_template import CrossEncoderTemplate
from greenroom.engine.encoding.rerank.generative_template import MAX_CONTEXT, GenerativeTemplate
from greenroom.engine.encoding.rerank.pair_tokens import PairReader, PairTemplate, PlainEncoder
from greenroom.engine.encoding.rerank.reranker_kinds import reranker_type
from greenroom.engine.encoding.rows import PreparedRows, common_beginning
from greenroom.engine.fairness.preparation_steps import PreparationSteps, run_to_end
from greenroom.engine.tokenizer.reading_in_pieces import read_in_pieces
from greenroom.schemas.messages.requests import InferenceRequest, ScoreInput
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.models.kinds import wrong_kind
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings


class RerankAdapter:
    """Prepares requests for one model on one thread, without state between them.

    Args:
        record: The model's capabilities.
        encoder: The model's tokenizer.
        form: The model's pair template.
        context: Limit of tokens per pair.
    """

    def __init__(
        self, record: CapabilityRecord, encoder: PlainEncoder, form: PairTemplate, context: int
    ) -> None:
        self.record = record
        self._causal = form.causal
        self._reader = PairReader(encoder, form, context)

    def prepare_input(self, request: InferenceRequest) -> PreparedRows:
        """Tokenize a request's pairs.

        Raises:
            ProblemError: 400: a text is too long, or the request is not for a reranker.
        """
        return run_to_end(self.prepare_in_steps(request))

    def prepare_in_steps(self, request: InferenceRequest) -> PreparationSteps[PreparedRows]:
        """Do the same as `prepare_input` in steps.

        Raises:
            ProblemError: 400: a text is too long, or the request is not for a reranker.
        """
        asked = request.input
        if not isinstance(asked, ScoreInput):
            raise ProblemError(wrong_kind(request.key.model, self.record.model_type, asked))
        rows = yield from self._reader.rows(asked)
        shared = common_beginning(rows) if self._causal else 0
        return PreparedRows(rows, shared=shared, param=asked.param)


def open_rerank_adapter(
    folder: Path, record: CapabilityRecord, settings: Settings, name: str
) -> RerankAdapter:
    """Return the adapter of a model's folder; needs no weights.

    Args:
        name: The model's name in errors.

    Raises:
        ProblemError: 503 `load_failed`.
    """
    from transformers import AutoTokenizer

    read_in_pieces()
    with named_failures(folder, name):
        check_folder(folder)
        check_tokenizer_files(folder)
        config = read_json_object(folder / "config.json")
        form = reranker_type(config)
        tokenizer = AutoTokenizer.from_pretrained(
            str(folder),
            local_files_only=True,
            trust_remote_code=settings.trust_remote_code,
            mistral_format=False,  # as in `load_tokenizer`
        )
        encoder = PlainEncoder(_backend(tokenizer))
        context = min(record.context, settings.max_context or record.context)
        if form == "cross_encoder":
            types = int(config.get("type_vocab_size") or 1)
            return RerankAdapter(record, encoder, CrossEncoderTemplate(encoder, types), context)
        return RerankAdapter(record, encoder, GenerativeTemplate(encoder), min(context, MAX_CONTEXT))


def _backend(tokenizer: Any) -> Any:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError("its tokenizer has no form that the `tokenizers` library computes (tokenizer.json)")
    return backend
