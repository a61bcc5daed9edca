"""Answers are read as markdown, at once and as they grow; formulas are shown as they are written."""

from __future__ import annotations

import pytest

from greenroom.tests.browser.page import Page
from greenroom.tests.browser.stand_in import standing_in

CODE = (
    '<div class="code"><pre tabindex="0"><code>{}</code></pre>'
    '<button type="button" class="small">Copy</button></div>'
)
LINK = '<a href="{0}" rel="noreferrer noopener" target="_blank" title="{0}">{1}</a>'
READ = {
    "a **b** `c` &lt;d&gt; ~~e~~": "<p>a <strong>b</strong> <code>c</code> &lt;d&gt; <s>e</s></p>",
    "snake_case and __init__ *x*": "<p>snake_case and <strong>init</strong> <em>x</em></p>",
    "$$x = 1$$ and **b**": "<p><code>x = 1</code> and <strong>b</strong></p>",
    "1. First: $$x = 1$$\n2. Second **bold**": (
        "<ol><li>First: <code>x = 1</code></li><li>Second <strong>bold</strong></li></ol>"
    ),
    "$$x = 1$$\n\n```\ncode\n```\n\nb": CODE.format("x = 1") + CODE.format("code") + "<p>b</p>",
    "Thus\n\\[\na\n= b\n\\]\nc": "<p>Thus</p>" + CODE.format("a\n= b") + "<p>c</p>",
    "A \\[ E_1 \\] and \\(a_1*b*\\).": "<p>A <code>E_1</code> and <code>a_1*b*</code>.</p>",
    "$a_1$ costs $5 or $6, $HOME and $$": "<p><code>$a_1$</code> costs $5 or $6, $HOME and $$</p>",
    "$$ is not closed\n\n*b*": "<p>$$ is not closed</p><p><em>b</em></p>",
    "- a\n\n  ```py\n  x\n  ```\n\n  then y\n- b": (
        "<ul><li><p>a</p>" + CODE.format("x") + "<p>then y</p></li><li><p>b</p></li></ul>"
    ),
    "> ```\n> x\n> ```\n\nafter": "<blockquote>" + CODE.format("x") + "</blockquote><p>after</p>",
    "~~~\n```\n~~~": CODE.format("```"),
    "a | b\n--|:-:\n1 | 2": (
        '<div class="table" tabindex="0"><table><thead><tr><th>a</th><th class="to-center">b</th></tr>'
        '</thead><tbody><tr><td>1</td><td class="to-center">2</td></tr></tbody></table></div>'
    ),
    "- [ ] a\n- [x] b": "<ul><li>☐ a</li><li>☑ b</li></ul>",
    "3. c\n   - d": '<ol start="3"><li>c<ul><li>d</li></ul></li></ol>',
    "# A\n\nb\n\n---": "<h3>A</h3><p>b</p><hr>",
    "[a][1] https://example.org/b\n\n[1]: https://example.org/a": (
        f"<p>{LINK.format('https://example.org/a', 'a')} "
        f"{LINK.format('https://example.org/b', 'https://example.org/b')}</p>"
    ),
    "a\r\n\r\nb\r\n\r\nc": "<p>a</p><p>b</p><p>c</p>",
    "<b>a</b> & \\*": "<p>&lt;b&gt;a&lt;/b&gt; &amp; *</p>",
}
_RENDER = """
const [read, step, done] = arguments;
const files = ['markdown_view', 'live_text', 'vendor/preact'];
Promise.all(files.map((name) => import(`/pages/${name}.js`)))
  .then(async ([{ MarkdownView }, { LiveText }, { h, render }]) => {
    const frame = () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    const found = await Promise.all(Object.keys(read).map(async (text) => {
      const place = document.createElement('div');
      const live = new LiveText();
      render(h(MarkdownView, { live }), place);
      for (let at = 0; at < text.length; at += step) {
        live.append(text.slice(at, at + step));
        if (step < 1000) await frame();
      }
      live.end();
      const isRead = () => place.firstChild.innerHTML === read[text];
      for (let frames = 0; frames < 300 && !isRead(); frames += 1) await frame();
      const html = place.firstChild.innerHTML;
      render(null, place);
      return [text, html];
    }));
    done(found);
  });
"""


@pytest.mark.parametrize("step", [3, 1_000_000])
def test_each_form_is_read_whole_and_as_it_grows(page: Page, step: int) -> None:
    with standing_in() as server:
        page.open(server.address)
        found = page.driver.execute_async_script(_RENDER, READ, step)
        assert len(found) == len(READ)
        for text, got in found:
            assert (text, got) == (text, READ[text])
