// A growing text as markdown: some milliseconds of each frame at most, so that clicks are answered meanwhile.
import { GrowingMarkdown } from './markdown.js';
import { h, html, useLayoutEffect, useState } from './vendor/preact.js';

const FRAME_MS = 6;
const SHARE = 4; // of the time: after a long look at a growing block the next one waits, but not longer than this
const REST_MS = 400;
const PIECE = 4_000;
// What is longer is data rather than prose: it is shown as it is, and beyond the second bound only counted.
const MARKED = 100_000;
const SHOWN = 400_000;
const PLAIN = 20_000;

export function MarkdownView({ live }) {
  const [{ nodes, isRead }, draw] = useState({ nodes: [], isRead: false });
  useLayoutEffect(() => follow(live, draw), [live]);
  return html`<div class="markdown" dir="auto" aria-busy=${isRead ? 'false' : 'true'}>${nodes}</div>`;
}

function follow(live, draw) {
  let markdown = new GrowingMarkdown();
  let at = 0;
  let frame = 0;
  let resting = 0; // until when
  let isRead = false;

  const pump = () => {
    frame = 0;
    const began = performance.now();
    if (began < resting) return schedule();
    const end = Math.min(live.text.length, MARKED);
    while (!isRead && performance.now() - began < FRAME_MS) {
      at = Math.min(end, at + PIECE);
      isRead = at === end && (live.ended || end === MARKED);
      markdown.read(live.text, at, isRead);
      if (at === end) break;
    }
    const again = isRead && markdown.withDefinitions(live.text.slice(0, end));
    if (again) {
      markdown = again;
      isRead = false;
      at = 0;
    }
    draw({ nodes: [...markdown.nodes, ...(isRead ? plainOf(live.text) : [])], isRead });
    const spent = performance.now() - began;
    if (spent > FRAME_MS) resting = performance.now() + Math.min(REST_MS, SHARE * spent);
    return at < end ? schedule() : undefined;
  };
  const schedule = () => { frame ||= requestAnimationFrame(pump); };
  live.followers.add(schedule);
  pump();
  return () => {
    live.followers.delete(schedule);
    cancelAnimationFrame(frame);
  };
}

function plainOf(text) {
  const pieces = [];
  for (let at = MARKED; at < Math.min(text.length, SHOWN); at += PLAIN) pieces.push(h('div', { class: 'overlong' }, text.slice(at, at + PLAIN)));
  const more = text.length - SHOWN;
  if (more > 0) pieces.push(h('p', { class: 'faint' }, `${more.toLocaleString('en')} more characters are not shown here; “Copy” and exports hold all.`));
  return pieces;
}
