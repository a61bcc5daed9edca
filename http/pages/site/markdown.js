// Markdown as nodes, from text that nobody vouches for: no HTML is read, nothing is fetched, links are few.
import MarkdownIt from './vendor/markdown-it.js';
import { CopyButton } from './copy_button.js';
import { h } from './vendor/preact.js';

const HEADINGS = { h1: 'h3', h2: 'h4', h3: 'h5', h4: 'h6', h5: 'h6', h6: 'h6' }; // below those of the page
const PROTOCOLS = ['http:', 'https:', 'mailto:'];
const LONGEST = 20_000; // a longer paragraph is data rather than prose

const blocks = new MarkdownIt().disable(['inline', 'linkify', 'replacements', 'smartquotes', 'text_join']);
const prose = new MarkdownIt({ linkify: true });
blocks.block.ruler.before('fence', 'math', blockMath, { alt: ['paragraph', 'reference', 'blockquote', 'list'] });
prose.inline.ruler.before('escape', 'math', inlineMath);
prose.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
for (const parser of [blocks, prose]) parser.validateLink = () => true; // `safeAddress` decides

// TeX is shown as it is written; what is not closed is text. Bounded, since every `\[` looks for its end.
const TEX = /\\\(([^\n]{1,2000}?)\\\)|\\\[([^]{1,2000}?)\\\]|\$\$([^]{1,2000}?)\$\$|(\$(?=[^\s$])[^$\n]{0,500}[^\s$\\]\$)(?![\p{L}\p{N}])/uy;

function inlineMath(state, silent) {
  TEX.lastIndex = state.pos;
  const found = /[\\$]/.test(state.src[state.pos]) && TEX.exec(state.src);
  if (!found || TEX.lastIndex > state.posMax) return false;
  if (!silent) state.push('code_inline', 'code', 0).content = found.slice(1).find((text) => text !== undefined).trim();
  state.pos += found[0].length;
  return true;
}

// From `$$` or `\[` at the beginning of a line to the end of this line or a later one, without a blank line.
function blockMath(state, first, last, silent) {
  const opening = state.src.slice(state.bMarks[first] + state.tShift[first]).slice(0, 2);
  const closing = { $$: '$$', '\\[': '\\]' }[opening];
  if (!closing || state.sCount[first] - state.blkIndent >= 4) return false;
  for (let line = first; line < last && !state.isEmpty(line) && state.sCount[line] >= state.blkIndent; line += 1) {
    const text = state.getLines(first, line + 1, state.blkIndent, false).trim().slice(2);
    const at = text.indexOf(closing);
    if (at >= 0 && at < text.length - 2) return false;
    if (at >= 0) {
      if (!silent) Object.assign(state.push('fence', 'code', 0), { content: text.slice(0, -2).trim(), map: [first, line + 1] });
      state.line = line + 1;
      return true;
    }
  }
  return false;
}

// The address of a link that may stand in an answer, or null.
export function safeAddress(written) {
  let found;
  try {
    found = new URL(written);
  } catch {
    return null; // also what is relative: a model knows no paths of this server
  }
  return PROTOCOLS.includes(found.protocol) ? found.href : null;
}

function linkTo(written, children, isImage = false) {
  const address = safeAddress(written);
  const kind = isImage ? 'image-link' : null;
  if (address === null) return h('a', { class: kind, title: 'This link is not followed: only http, https and mailto are.' }, children);
  return h('a', { class: kind, href: address, rel: 'noreferrer noopener', target: '_blank', title: address }, children);
}

function CodeBlock({ text }) {
  return h('div', { class: 'code' }, h('pre', { tabindex: 0 }, h('code', null, text)), h(CopyButton, { textOf: () => text })); // it scrolls
}

function elementOf(token, children) {
  switch (token.type) {
    case 'heading_open': return h(HEADINGS[token.tag], null, children);
    case 'link_open': return linkTo(token.attrGet('href'), children.map((each) => (each?.type === 'a' ? each.props.children : each)));
    case 'ordered_list_open': return h('ol', Object.fromEntries(token.attrs || []), children); // where it starts
    case 'table_open': return h('div', { class: 'table', tabindex: 0 }, h('table', null, children));
    case 'th_open': case 'td_open': return h(token.tag, { class: token.attrGet('style')?.replace('text-align:', 'to-') }, children);
    case 'paragraph_open': return token.hidden ? children : h('p', null, children);
    default: return h(token.tag, null, children);
  }
}

function leafOf(token) {
  switch (token.type) {
    case 'fence': case 'code_block': return h(CodeBlock, { text: token.content.replace(/\n$/, '') });
    case 'code_inline': return h('code', null, token.content);
    case 'image': return linkTo(token.attrGet('src'), token.content || 'image', true);
    case 'hardbreak': case 'hr': return h(token.tag);
    case 'softbreak': return '\n';
    default: return token.content;
  }
}

// The nodes at the top, each with the line where it begins. `inline` makes nodes of a paragraph's text.
function nodesOf(tokens, inline) {
  const open = [{ children: [] }];
  const top = [];
  for (const token of tokens) {
    if (token.nesting === 1) open.push({ token, children: [], line: token.map?.[0] });
    else {
      const { token: opened, children, line } = token.nesting === -1 ? open.pop() : { line: token.map?.[0] };
      const isTask = token.type === 'inline' && open.at(-2)?.token?.type === 'list_item_open' && !open.at(-2).children.length;
      const text = isTask ? token.content.replace(/^\[ \] /, '☐ ').replace(/^\[x\] /i, '☑ ') : token.content;
      const node = opened ? elementOf(opened, children) : token.type === 'inline' ? inline(text) : leafOf(token);
      open.at(-1).children.push(node);
      if (open.length === 1) top.push({ node, line });
    }
  }
  return top;
}

const DEFINITION = /^[ >]{0,20}\[[^\]\n]{1,200}\]:/m;

// A text that grows: all blocks but its last are read once.
export class GrowingMarkdown {
  constructor(links = {}) {
    this.links = links; // definitions that any block may refer to
    this.from = 0;
    this.done = [];
    this.last = null;
    this.inlines = new Map(); // nodes of the last block's paragraphs
  }

  get nodes() {
    return this.last === null ? this.done : [...this.done, this.last];
  }

  // The same from the start, if the whole text has definitions: they may stand behind what refers to them.
  withDefinitions(text) {
    const links = {};
    if (!this.links.references && DEFINITION.test(text)) blocks.parse(text, links);
    return links.references ? new GrowingMarkdown(links) : null;
  }

  // Reads on to `end`; a line whose first signs may still become a list or a heading is left for later.
  read(text, end, isEnded) {
    const written = text.slice(this.from, end);
    const source = isEnded ? written : written.replace(/(^|\n)[ \t>]*(?:(?:[-+*=_`~#|:$\\]+|\d{1,9}[.)]?)[ \t]*)?$/, '$1');
    const found = nodesOf(blocks.parse(source, { ...this.links }), (content) => this.inline(content));
    const last = isEnded ? null : found.pop();
    for (const { node } of found) this.done.push(node);
    this.last = last ? last.node : null;
    if (found.length) {
      this.inlines.clear();
      this.from += last ? startOf(source, last.line) : source.length;
    }
  }

  inline(content) {
    if (!this.inlines.has(content)) this.inlines.set(content, inlineNodes(content, this.links));
    return this.inlines.get(content);
  }
}

function inlineNodes(content, links) {
  if (content.length > LONGEST) return [content];
  const [{ children }] = prose.parseInline(content, links);
  return nodesOf(children, null).map(({ node }) => node);
}

function startOf(text, line) {
  const breaks = /\r\n?|\n/g;
  for (let count = 0; count < line; count += 1) breaks.exec(text);
  return breaks.lastIndex;
}
