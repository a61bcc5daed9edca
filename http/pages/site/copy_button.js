// A button that copies a text, and says whether it did.
import { html, useState } from './vendor/preact.js';

const SHOWN_MS = 1_500;

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

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copySelected(text); // no secure context, or the user said no
  }
}

export function CopyButton({ textOf, kind = 'small' }) {
  const [label, setLabel] = useState('Copy');
  const copy = async () => {
    setLabel(await copyText(textOf()) ? 'Copied' : 'Not allowed');
    setTimeout(() => setLabel('Copy'), SHOWN_MS);
  };
  return html`<button type="button" class=${kind} onClick=${copy}>${label}</button>`;
}
