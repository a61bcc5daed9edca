// A growing text as markdown: some milliseconds of each frame at most, so that clicks are answered meanwhile.
import { html, useLayoutEffect, useRef } from './vendor/preact.js';
import { markdownInto } from './markdown.js';

const FRAME_MS = 6;
const PIECE = 2_000;
// What is longer is data rather than prose: it is shown as it is, and beyond the second bound only counted.
const MARKED = 100_000;
const SHOWN = 400_000;

export function MarkdownView({ live }) {
  const place = useRef(null);
  useLayoutEffect(() => follow(place.current, live), [live]);
  return html`<div class="markdown" dir="auto" ref=${place}></div>`;
}

function follow(element, live) {
  const parser = markdownInto(element.appendChild(document.createElement('div')));
  let at = 0;
  let frame = 0;
  let ended = false;
  const note = document.createElement('p');
  note.className = 'faint';

  const writePiece = () => {
    const end = Math.min(at + PIECE, live.text.length, at < MARKED ? MARKED : SHOWN);
    const piece = live.text.slice(at, end);
    if (at < MARKED) parser.write(piece);
    else appendPlain(element, piece);
    at = end;
  };
  const pump = () => {
    frame = 0;
    const until = performance.now() + FRAME_MS;
    const last = Math.min(live.text.length, SHOWN);
    while (at < last && performance.now() < until) writePiece();
    if (at < last) schedule();
    else if (live.ended && !ended) {
      ended = true;
      parser.end();
    }
    if (live.text.length > SHOWN) {
      const more = live.text.length - SHOWN;
      note.textContent = `${more.toLocaleString('en')} more characters are not shown here; “Copy” and exports hold all.`;
      element.append(note);
    }
  };
  const schedule = () => { frame ||= requestAnimationFrame(pump); };
  live.followers.add(schedule);
  pump();
  return () => {
    live.followers.delete(schedule);
    cancelAnimationFrame(frame);
    element.replaceChildren();
  };
}

function appendPlain(element, piece) {
  const last = element.lastElementChild;
  if (last.className === 'overlong' && last.textContent.length < 20_000) last.append(piece);
  else element.append(Object.assign(document.createElement('div'), { className: 'overlong', textContent: piece }));
}
