"""Expansion of image and audio placeholders in a rendered prompt into the processor's tokens."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import cast

import attrs

from greenroom.engine.adapters.conversation import IMAGE_NUMBER, Medium, RenderedImage
from greenroom.engine.adapters.prompt_renderer import RenderedPrompt
from greenroom.engine.adapters.template_probe import TEMPLATE_ERROR
from greenroom.engine.tokenizer.control_tokens import split_marked
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.messages.prepared_input import PreparedImage
from greenroom.schemas.messages.requests import ChatInput
from greenroom.schemas.problems import invalid


@attrs.frozen
class Placeholder:
    """A chat template's text for an image or audio. `marker`: placeholder that the processor replaces with
    its tokens; `roles`: roles whose messages may have it as a content part; in others, `text` replaces it.
    """

    text: str
    marker: str
    roles: frozenset[str] = frozenset()


@attrs.frozen
class ImageTokens:
    """A processor's replacement of a placeholder.

    Args:
        before: Text that is tokenized with the text before the image.
        tokens: Token ids of the image.
        behind: Text that is tokenized with the text behind the image.
    """

    before: str
    tokens: tuple[int, ...]
    behind: str


class PlaceholderExpander:
    """Writes images into the prompts of one model.

    Text between two images is tokenized as the processor does: with one token in place of each image, which
    is expanded afterwards.
    """

    def __init__(self, tokenizer: ChatTokenizer, placeholders: Mapping[Medium, Placeholder]) -> None:
        self._placeholders = placeholders
        self._tokenizer = tokenizer
        self._names = {ident: token for token, ident in tokenizer.added_tokens.items()}
        markers = "|".join(re.escape(placeholder.marker) for placeholder in placeholders.values())
        self._places = re.compile(f"{markers}|{IMAGE_NUMBER.pattern}")

    @property
    def media(self) -> Mapping[str, Collection[str]]:
        """Media that the template takes as content parts, by role."""
        roles = {role for placeholder in self._placeholders.values() for role in placeholder.roles}
        return {
            role: [name for name, placeholder in self._placeholders.items() if role in placeholder.roles]
            for role in roles
        }

    def encode(self, prompt: RenderedPrompt, chat: ChatInput) -> Iterator[list[int]]:
        """Yield the token ids of a prompt, with images expanded. Raises ProblemError: 400 if the template
        does not show all images.
        """
        images = deque(self.images_in_order(prompt, chat))
        to_rewrite, written = images.copy(), images

        def rewrite(piece: str) -> str:
            return self._places.sub(lambda match: self._stand_in(match, to_rewrite.popleft()), piece)

        for tokens in self._tokenizer.encode_rendered(prompt.text, rewrite):
            yield _with_images(tokens, written)

    def images_in_order(self, prompt: RenderedPrompt, chat: ChatInput) -> list[RenderedImage]:
        """Return the images of a prompt in order. Raises ProblemError: 400 if the template does not show
        exactly the conversation's images.
        """
        images = _by_number(chat)
        in_parts = iter(prompt.image_parts)
        pieces = (piece for piece, literal in split_marked(prompt.text) if not literal)
        places = [match for piece in pieces for match in self._places.finditer(piece)]
        numbers = [int(match[2]) if match[2] else next(in_parts, -1) for match in places]
        if sorted(numbers) != sorted(images):
            shown = len(set(numbers) & set(images))
            detail = (
                f"The model's chat template shows {shown} of the {len(images)} images of this conversation, "
                f"in {len(numbers)} places: it does not take images where they are."
            )
            raise invalid(detail, "messages", TEMPLATE_ERROR)
        return [images[number] for number in numbers]

    def spans(self, images: Sequence[RenderedImage], tokens: Sequence[int]) -> tuple[PreparedImage, ...]:
        """Return the images with the spans of their tokens in a prompt."""
        prepared = []
        at = 0
        for image in images:
            own = _tokens_of(image).tokens
            at = tokens.index(own[0], at)
            while tuple(tokens[at : at + len(own)]) != own:
                at = tokens.index(own[0], at + 1)
            end = at + len(own)
            processed = image.processed
            sound = image.medium == "audio"
            prepared.append(
                PreparedImage(at, end, processed.digest, processed.inputs, image.tokens, is_sound=sound)
            )
            at = end
        return tuple(prepared)

    def shown_text(self, text: str) -> str:
        """Return a rendered prompt for display, with every image as the template writes it."""
        return IMAGE_NUMBER.sub(lambda match: self._placeholders[cast(Medium, match[1])].text, text)

    def _stand_in(self, match: re.Match[str], image: RenderedImage) -> str:
        """Return the text tokenized in place of an image; its first token is then expanded."""
        written = _tokens_of(image)
        text = f"{written.before}{self._names[written.tokens[0]]}{written.behind}"
        placeholder = self._placeholders[image.medium]
        return placeholder.text.replace(placeholder.marker, text, 1) if match[2] else text


def _by_number(chat: ChatInput) -> Mapping[int, RenderedImage]:
    parts = (part for message in chat.messages for part in message.content)
    return {part.number: part for part in parts if isinstance(part, RenderedImage)}


def _tokens_of(image: RenderedImage) -> ImageTokens:
    written: ImageTokens = image.processed.written
    return written


def _with_images(tokens: list[int], images: deque[RenderedImage]) -> list[int]:
    """Expand the first token of each image into all its tokens; remove these images from `images`."""
    if not images or _tokens_of(images[0]).tokens[0] not in tokens:
        return tokens
    complete: list[int] = []
    for token in tokens:
        if images and token == (own := _tokens_of(images[0]).tokens)[0]:
            complete += own
            images.popleft()
        else:
            complete.append(token)
    return complete
