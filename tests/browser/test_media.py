"""Images and sound in the chat: pasted, recorded, spoken, by tiny models of each kind."""

from __future__ import annotations

import base64
import io
from pathlib import Path

from PIL import Image

from greenroom.tests.browser.page import Page
from greenroom.tests.support.servers.server_processes import ServerProcess

_PASTE = """
const octets = Uint8Array.from(atob(arguments[0]), (letter) => letter.charCodeAt(0));
const held = new DataTransfer();
held.items.add(new File([octets], arguments[1], {type: arguments[2]}));
const place = document.querySelector('#message');
const init = {bubbles: true, cancelable: true};
const event = arguments[3] === 'paste'
    ? new ClipboardEvent('paste', {...init, clipboardData: held})
    : new DragEvent('drop', {...init, dataTransfer: held});
place.dispatchEvent(event);
"""


def png() -> str:
    held = io.BytesIO()
    Image.new("RGB", (64, 48), (28, 107, 74)).save(held, "PNG")
    return base64.b64encode(held.getvalue()).decode()


def test_images_are_pasted_and_dropped_to_a_model_that_sees(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.wait(lambda: len(page.texts("select option")) > 1)
    page.run(_PASTE, png(), "a.png", "image/png", "paste")
    page.wait(lambda: "This model sees no images: choose one that does." in page.texts(".composer .problem"))
    page.choose("qwen2_vl")
    page.press("Settings")
    page.fill("Most tokens", "20")
    page.press("Settings")
    page.run(_PASTE, png(), "a.png", "image/png", "paste")
    page.run(_PASTE, png(), "b.png", "image/png", "drop")
    page.wait(lambda: len(page.all(".attached img")) == 2)
    page.press("Remove b.png")
    page.run(_PASTE, base64.b64encode(b"MZ").decode(), "c.exe", "application/x-msdownload", "drop")
    page.wait(lambda: "“c.exe” is no image and no PDF." in page.texts(".composer .problem"))
    page.ask("What is this?")
    page.answer()
    assert "prompt tokens cached" in page.texts(".answer .small-print")[-1]
    assert page.run("return document.querySelector('.entry.user img').naturalWidth") == 64
    page.picture("image")


def pdf() -> str:
    held = io.BytesIO()
    Image.new("RGB", (64, 48), (28, 107, 74)).save(held, "PDF")
    return base64.b64encode(held.getvalue()).decode()


def test_a_pdf_is_attached_and_its_page_is_read(page: Page, server: ServerProcess, tmp_path: Path) -> None:
    page.open(server.address)
    page.choose("qwen2_vl")
    page.press("Settings")
    page.fill("Most tokens", "20")
    page.press("Settings")
    path = tmp_path / "report <b>.pdf"
    path.write_bytes(base64.b64decode(pdf()))
    page.wait(lambda: page.all(".composer input[type=file]"))
    page.all(".composer input[type=file]")[0].send_keys(str(path))
    page.wait(lambda: "report <b>.pdf" in "".join(page.texts(".attached li")))
    page.ask("What does it say?")
    page.answer()
    assert "report <b>.pdf" in "".join(page.texts(".entry.user .body"))
    assert "prompt tokens cached" in page.texts(".answer .small-print")[-1]
    page.picture("pdf")
    page.press("Edit")
    page.fill("Edited message", "And the first line?")
    page.press("Send as a branch")
    page.wait(lambda: "And the first line?" in "".join(page.texts(".entry.user .body")))
    page.answer()
    assert "report <b>.pdf" in "".join(page.texts(".entry.user .body"))


def test_a_broken_pdf_is_an_answer_that_says_so(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.choose("qwen2_vl")
    page.run(_PASTE, base64.b64encode(b"%PDF-1.7 and nothing").decode(), "b.pdf", "application/pdf", "drop")
    page.wait(lambda: page.texts(".attached li"))
    page.ask("What does it say?")
    page.answer()
    [problem] = page.texts(".answer .problem")
    assert "PDF" in problem or "pdf" in problem


def test_a_recording_becomes_the_message(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.press("Record")
    page.wait(lambda: page.texts("#record") == ["End the recording"])
    page.run("return new Promise((resolve) => setTimeout(resolve, 1200))")  # a recording takes its time
    page.press("End the recording")
    page.wait(lambda: page.texts("#record") == ["Record"])
    assert page.texts(".composer .problem") == [""]
    assert page.run("return document.querySelector('#message').value") != ""
    page.picture("recording")


def test_a_reader_who_leaves_is_not_heard(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.run(
        "const media = navigator.mediaDevices, ask = media.getUserMedia.bind(media);"
        "media.getUserMedia = async (wanted) => { window.heard = await ask(wanted); return heard; }"
    )
    page.press("Record")
    page.wait(lambda: page.texts("#record") == ["End the recording"])
    page.go("#control/models")
    page.wait(lambda: page.run("return heard.getTracks().every((each) => each.readyState === 'ended')"))


def test_an_answer_is_spoken(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.ask("What is 2 plus 3?")
    page.answer()
    page.press("Speak")
    page.wait(lambda: page.all(".answer audio"))
    player = "const player = document.querySelector('.answer audio'); return "
    page.wait(lambda: page.run(player + "player.currentTime > 0 && player.duration > 0.5"))
    page.picture("spoken")


def test_without_a_secure_context_the_recording_is_hidden_with_its_reason(
    page: Page, server: ServerProcess
) -> None:
    added = page.driver.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument",
        {"source": "Object.defineProperty(window, 'isSecureContext', {value: false})"},
    )
    try:
        page.open(server.address)
        page.wait(lambda: "Recording needs https or localhost." in page.texts(".composer .faint"))
        assert not page.all("#record")
    finally:
        page.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
