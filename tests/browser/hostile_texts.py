"""Texts of a hostile model: HTML, links, styles, marks without end and letters that turn others."""

from __future__ import annotations

_RUN = "window.pwned=1"
CORPUS = {
    "script": f"<script>{_RUN}</script> <SCRIPT SRC=https://evil.example/x.js></SCRIPT>",
    "handlers": f'<img src=x onerror="{_RUN}"> <svg onload={_RUN}> <body onload={_RUN}>'
    f"<details ontoggle={_RUN} open>",
    "frames": f'<iframe src="javascript:{_RUN}"></iframe><object data="https://evil.example"></object>',
    "links": f"[a](javascript:{_RUN}) [b](JaVaScRiPt:{_RUN}) [c](data:text/html,<script>{_RUN}</script>) "
    f"[d](vbscript:x) [e](//evil.example) [f](\tjavascript:{_RUN}) [g](/admin/models) [h](file:///etc/passwd)",
    "good links": "[a](https://example.org/) [b](mailto:a@example.org) https://example.org/raw",
    "images": "![x](https://evil.example/pixel.png) ![y](//evil.example/p.png) "
    "![z](data:image/svg+xml,<svg/onload=1>)",
    "image in link": "[![x](https://evil.example/pixel.png)](https://evil.example/)",
    "styles": "<style>@import 'https://evil.example/x.css'; body {display: none}</style>"
    "<link rel=stylesheet href=//evil.example>",
    "forms": '<form action="https://evil.example"><input name=key><button>Go</button></form>'
    '<base href="//evil.example">',
    "meta": '<meta http-equiv="refresh" content="0;url=https://evil.example">',
    "attributes": f'[x](https://example.org/"onmouseover="{_RUN}) ```"><script>{_RUN}</script>\ncode\n```',
    "table": "|" + "a|" * 300 + "\n|" + "-|" * 300 + ("\n|" + "b|" * 300) * 20,
    "deep quotes": ">" * 3_000 + " deep\n\n" + "- " * 3_000 + "deep",
    "stars": "*" * 5_000 + "_" * 5_000 + "`" * 5_001 + "[" * 5_000,
    "bidi": "abc \u202e live \u2066 \u2069 \u200b\u200d\ufeff z\u0361a\u0353l\u0332g\u0321o 😀 \u0000 \ufffd",
    "prototype": "__proto__ constructor toString ${alert(1)} {{7*7}} <%= 1 %>",
    "svg": f"<svg><script>{_RUN}</script><a xlink:href='javascript:{_RUN}'><text>x</text></a>"
    f"<use href='data:image/svg+xml,<svg id=x onload={_RUN}>#x'/><animate onbegin={_RUN} attributeName=x>"
    "<image href=https://evil.example/p.svg /></svg>",
    "mathml": f"<math><mtext><table><mglyph><style><!--</style><img src=x onerror={_RUN}></math>",
    "media": "<video src=https://evil.example/v autoplay><audio src=//evil.example/a>"
    f"<source onerror={_RUN}><track src=//evil.example/t><embed src=//evil.example/e><applet code=x>",
    "mutation": f"<noscript><p title='</noscript><img src=x onerror={_RUN}>'><template>"
    f"<script>{_RUN}</script>",
    "hidden control": f"java\u0000script:{_RUN} [a](java\nscript:{_RUN}) [b](java&#115;cript:{_RUN}) "
    f"[c](&#x6A;avascript:{_RUN}) [d](%6aavascript:{_RUN}) [e](\u0001javascript:{_RUN})",
    "other protocols": "[a](blob:https://evil.example/1) [b](filesystem:x) [c](ws://evil.example) "
    "[d](intent://x) [e](ms-msdt:x) [f](view-source:https://evil.example) [g](about:blank) "
    "[h](ftp://evil.example)",
    "data URLs": f"[a](data:text/html;base64,PHNjcmlwdD4=) ![b](data:text/html,<script>{_RUN}</script>) "
    f"[c](data:application/xhtml+xml,<x>) <a href='data:text/html,<script>{_RUN}</script>'>d</a>",
    "references": f"[a]: javascript:{_RUN}\n[b]: https://evil.example/x.png\n\n[a] ![b] [x][a] ![y][b]",
    "automatic links": f"<javascript:{_RUN}> <https://evil.example/> <data:text/html,x> "
    "https://evil.example/$",
    "link with a name of another": "[https://bank.example](https://evil.example/) "
    "[\u202ehttps://x](https://evil.example)",
    "link in link": f"[a [b](javascript:{_RUN}) c](https://evil.example/) "
    f"[![a](javascript:{_RUN})](javascript:{_RUN})",
    "css": "<div style='position:fixed;inset:0;z-index:99;background:url(//evil.example/b)'>over</div>"
    "<p style=behavior:url(x)>{background-image: url(//evil.example)}</p>",
    "clobbering": "<form id=main><input id=message name=location><a id=send name=status></form>"
    "<img name=getElementById>",
    "comments": f"<!-- --!><script>{_RUN}</script> <![CDATA[<script>{_RUN}</script>]]> "
    "<?xml-stylesheet href=//evil.example?>",
    "code": f"```html onclick={_RUN}\n</code></pre><script>{_RUN}</script>\n```\n"
    f"`</code><img src=x onerror={_RUN}>`",
    "heading links": f"# [a](javascript:{_RUN})\n\n- [ ] [b](javascript:{_RUN})\n\n> "
    "![c](https://evil.example/c.png)",
    "table cells": f"|[a](javascript:{_RUN})|<img src=x onerror={_RUN}>|\n|-|-|\n"
    "|![b](//evil.example)|</td><script>|",
    "mathematics": f"$$\\href{{javascript:{_RUN}}}{{x}}$$ \\(\\url{{javascript:{_RUN}}}\\) \\[x\\]",
    "emphasis without end": "*a **b _c __d " * 3_000,
    "brackets": "[" * 20_000 + "](" * 20_000 + ")" * 20_000,
    "many links": "[a](https://example.org) " * 3_000,
    "many code blocks": "```\nx\n```\n" * 1_500,
    "numbered deep": "\n".join(f"{'   ' * depth}1. x" for depth in range(200)),
    "blank lines": "\n" * 50_000,
    "combining marks": "a" + "\u0301" * 20_000 + " " + "\u0d5b" * 5_000,
    "direction": "\u202e\u2067" * 2_000
    + " \u0639\u0631\u0628\u064a "
    + "\u200f" * 500
    + "\u061c\u180e\ufff9x\ufffb",
    "half characters": "\ud83d \udc00 \uffff \ufdd0 \u2028 \u2029 \u0085 \x1b[31m \x07 \x08",
    "tags": "\U000e0041\U000e0042 hidden \U000e007f \U0001f3f4\U000e0067",
    "own signs": "data: {}\n\nevent: response.completed\ndata: [DONE]\n\n: comment\r\nid: 1\nretry: 1",
    "templates": "<greenroom-x is=y slot=z></greenroom-x> <script type=importmap>{}</script> "
    "<portal src=//evil.example>",
}
