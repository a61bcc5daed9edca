// Markdown as DOM nodes, from text that nobody vouches for: no HTML is read, nothing is fetched, links are few.
import * as smd from './vendor/streaming-markdown.js';

const TAGS = {
  [smd.PARAGRAPH]: 'p', [smd.LINE_BREAK]: 'br', [smd.RULE]: 'hr', [smd.BLOCKQUOTE]: 'blockquote',
  [smd.HEADING_1]: 'h3', [smd.HEADING_2]: 'h4', [smd.HEADING_3]: 'h5',
  [smd.HEADING_4]: 'h6', [smd.HEADING_5]: 'h6', [smd.HEADING_6]: 'h6',
  [smd.ITALIC_AST]: 'em', [smd.ITALIC_UND]: 'em', [smd.STRONG_AST]: 'strong', [smd.STRONG_UND]: 'strong',
  [smd.STRIKE]: 's', [smd.CODE_INLINE]: 'code', [smd.EQUATION_INLINE]: 'code', [smd.EQUATION_BLOCK]: 'code',
  [smd.LINK]: 'a', [smd.RAW_URL]: 'a', [smd.IMAGE]: 'a',
  [smd.LIST_UNORDERED]: 'ul', [smd.LIST_ORDERED]: 'ol', [smd.LIST_ITEM]: 'li', [smd.CHECKBOX]: 'span',
};
const PROTOCOLS = ['http:', 'https:', 'mailto:'];
const DEEPEST = 40;

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

function codeBlock(parent) {
  const figure = document.createElement('div');
  const copy = document.createElement('button');
  const pre = document.createElement('pre');
  const code = document.createElement('code');
  figure.className = 'code';
  copy.type = 'button';
  copy.className = 'small';
  copy.textContent = 'Copy';
  copy.onclick = async () => {
    const copied = await copyText(code.textContent);
    copy.textContent = copied ? 'Copied' : 'Not allowed';
    setTimeout(() => { copy.textContent = 'Copy'; }, 1500);
  };
  pre.tabIndex = 0; // it scrolls
  pre.append(code);
  figure.append(pre, copy);
  parent.append(figure);
  return code;
}

// The old way, which works over plain http too.
function copySelected(text) {
  const area = Object.assign(document.createElement('textarea'), { value: text, className: 'seen-by-readers' });
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const copied = document.execCommand('copy');
  area.remove();
  focused?.focus();
  return copied;
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copySelected(text); // no secure context, or the user said no
  }
}

function tableRow(table) {
  const head = table.tHead === null;
  const section = head ? table.createTHead() : (table.tBodies[0] || table.createTBody());
  return section.insertRow();
}

function opened(parent, type) {
  if (type === smd.CODE_BLOCK || type === smd.CODE_FENCE) return codeBlock(parent);
  if (type === smd.TABLE) {
    const frame = document.createElement('div');
    frame.className = 'table';
    frame.tabIndex = 0;
    parent.append(frame);
    return frame.appendChild(document.createElement('table'));
  }
  if (type === smd.TABLE_ROW) return tableRow(parent);
  if (type === smd.TABLE_CELL) {
    const inHead = parent.parentElement.tagName === 'THEAD';
    return parent.appendChild(document.createElement(inHead ? 'th' : 'td'));
  }
  const made = document.createElement(TAGS[type] || 'span');
  if (type === smd.CHECKBOX) made.textContent = '☐ ';
  return parent.appendChild(made);
}

function setAttribute(node, type, value) {
  if (type === smd.HREF || type === smd.SRC) {
    const address = safeAddress(value);
    if (address === null) {
      node.title = 'This link is not followed: only http, https and mailto are.';
      return;
    }
    node.href = address;
    node.rel = 'noreferrer noopener';
    node.target = '_blank';
    node.title = address;
    if (type === smd.SRC) node.className = 'image-link';
  } else if (type === smd.CHECKED) node.textContent = '☑ ';
  else if (type === smd.START) node.start = Number(value) || 1;
}

const UNDERSCORES = { [smd.ITALIC_UND]: '_', [smd.STRONG_UND]: '__' };

// A parser that writes into an element; `write` takes pieces of any size.
export function markdownInto(element) {
  const open = [element];
  const literal = []; // for each open token, the underscores that it is in place of emphasis
  let deeper = 0;
  let closing = ''; // of a literal token: only more text shows that it was closed, and not cut
  const text = (added) => open.at(-1).append(added);
  const renderer = {
    data: null,
    add_token(_, type) {
      if (type === smd.DOCUMENT) return;
      if (closing) text(closing);
      closing = '';
      const parent = open.at(-1);
      // `snake_case` is a name: the library takes the underscores in it for emphasis.
      const signs = /[\p{L}\p{N}]$/u.test(parent.lastChild?.data || '') ? UNDERSCORES[type] || '' : '';
      literal.push(signs);
      if (signs) text(signs);
      // Quotes in quotes without end would end in a page that cannot be laid out.
      else if (open.length > DEEPEST) deeper += 1;
      else open.push(opened(parent, type));
    },
    end_token() {
      closing = literal.pop() || '';
      if (closing) return;
      if (deeper) deeper -= 1;
      else if (open.length > 1) open.pop();
    },
    add_text(_, added) {
      text(closing + added);
      closing = '';
    },
    set_attr(_, type, value) { if (!deeper && !literal.at(-1)) setAttribute(open.at(-1), type, value); },
  };
  const parser = smd.parser(renderer);
  return { write: (text) => smd.parser_write(parser, text), end: () => smd.parser_end(parser) };
}
