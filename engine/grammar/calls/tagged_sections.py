"""Grammars of calls with tagged arguments, mostly in sections (DeepSeek V3.2, Step 3, MiniMax M2)."""

from __future__ import annotations

import attrs

from greenroom.engine.grammar.calls.constrained_tools import ConstrainedTool
from greenroom.engine.grammar.calls.json_call_bodies import Body
from greenroom.engine.grammar.calls.tagged_arguments import TaggedArguments
from greenroom.engine.grammar.lark.grammar_builder import SPACE, GrammarBuilder


def _section(arguments: TaggedArguments, end: str) -> Body:
    def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
        call = arguments.alternatives(text, tools)
        calls = f"{call} ({SPACE} {call})*" if many else call
        return f"{SPACE} {calls} {SPACE} {text.fixed_text(end)}"

    return body


def _alone(arguments: TaggedArguments) -> Body:
    return lambda text, tools, many: arguments.alternatives(text, tools)


def _invoke(prefix: str) -> TaggedArguments:
    return TaggedArguments(
        head=f'<{prefix}invoke name="{{}}">\n',
        before=f'<{prefix}parameter name="{{}}">',
        end=f"</{prefix}parameter>",
        tail=f"</{prefix}invoke>",
        space="",
    )


_dsml = attrs.evolve(_invoke("｜DSML｜"), before='<｜DSML｜parameter name="{}" string="{string}">')
DSML_SECTIONS = tuple(
    (f"<｜DSML｜{name}>", _section(_dsml, f"</｜DSML｜{name}>")) for name in ("function_calls", "tool_calls")
)

_step3 = _invoke("steptml:")
_step3 = attrs.evolve(
    _step3,
    head=f"<｜tool_call_begin｜>function<｜tool_sep｜>{_step3.head}",
    tail=f"{_step3.tail}<｜tool_call_end｜>",
)
STEP3_SECTIONS = (("<｜tool_calls_begin｜>", _section(_step3, "<｜tool_calls_end｜>")),)


def _hunyuan(label: str) -> TaggedArguments:
    return TaggedArguments(
        head=f"<tool_call{label}>{{}}<tool_sep{label}>\n",
        before=f"<arg_key{label}>{{}}</arg_key{label}>\n<arg_value{label}>",
        end=f"</arg_value{label}>",
        tail=f"</tool_call{label}>",
        space="",
        foreign=("<arg_",),
    )


def _hunyuan_without_section(label: str) -> TaggedArguments:
    arguments = _hunyuan(label)
    start = f"<tool_call{label}>"
    return attrs.evolve(arguments, head=arguments.head.removeprefix(start), tail=f"<end_of_tool_call{label}>")


MINIMAX_M2_SECTIONS = (("<minimax:tool_call>", _section(_invoke(""), "</minimax:tool_call>")),)
MUSE_SECTIONS = (("<atem:function_calls>", _section(_invoke("atem:"), "</atem:function_calls>")),)

_kimi_k3 = TaggedArguments(
    head='<|open|>call tool="{}" index="{index}"<|sep|>',
    before='<|open|>argument key="{}" type="{type}"<|sep|>',
    end="<|close|>argument<|sep|>",
    tail="<|close|>call<|sep|>",
    space="",
    around_json=('<|open|>json type="object"<|sep|>', "<|close|>json<|sep|>"),
)
KIMI_K3_SECTIONS = (("<|open|>tools<|sep|>", _section(_kimi_k3, "<|close|>tools<|sep|>")),)

_minicpm5 = TaggedArguments(
    head='"{}">',
    before='<param name="{}">',
    end="</param>",
    tail="</function>",
    space="",
    foreign=("<![",),
    trimmed=" \t\r\n",
)
MINICPM5_CALLS = (("<function name=", _alone(_minicpm5)),)

HUNYUAN_V3_SECTIONS = (
    ("<tool_calls:opensource>", _section(_hunyuan(":opensource"), "</tool_calls:opensource>")),
    ("<tool_call:opensource>", _alone(_hunyuan_without_section(":opensource"))),
    ("<tool_calls>", _section(_hunyuan(""), "</tool_calls>")),
    ("<tool_call>", _alone(_hunyuan_without_section(""))),
)
