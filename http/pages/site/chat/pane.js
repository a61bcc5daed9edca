// A conversation on the screen: the newest entries first, older ones when they are scrolled to.
import { html, useEffect, useRef, useState } from '../vendor/preact.js';
import { EntryView } from './entry_view.js';

const AT_ONCE = 40;
const NEAR = 60; // pixels from the end that count as the end

export function Pane({ conversation, acts, voice, label }) {
  const [shown, show] = useState(AT_ONCE);
  const [isAway, setAway] = useState(false);
  const place = useRef(null);
  const { entries } = conversation;
  const first = Math.max(0, entries.length - shown);

  useEffect(() => show(AT_ONCE), [conversation]);
  useEffect(() => keepAtEnd(place.current, setAway), [conversation]);

  const more = () => {
    const scroller = place.current;
    const below = scroller.scrollHeight - scroller.scrollTop;
    show(shown + AT_ONCE);
    requestAnimationFrame(() => { scroller.scrollTop = scroller.scrollHeight - below; });
  };
  const onScroll = () => { if (first && place.current.scrollTop < NEAR) more(); };
  const toEnd = () => { place.current.scrollTop = place.current.scrollHeight; };
  const idle = !conversation.isAnswering;
  return html`<div class="pane" ref=${place} tabindex="0" role="region" aria-label=${label} onScroll=${onScroll}>
    <div class="entries">
      ${first > 0 && html`<button type="button" class="quiet" onClick=${more}>${first} earlier</button>`}
      ${!entries.length && html`<p class="hint">Ask something. Nothing leaves this server.</p>`}
      ${entries.slice(first).map((entry, at) => html`<${EntryView} key=${first + at} entry=${entry} index=${first + at}
          isLast=${first + at === entries.length - 1} acts=${acts} idle=${idle} voice=${voice} />`)}
    </div>
    ${isAway && html`<button type="button" class="small to-end" onClick=${toEnd}>To the end</button>`}</div>`;
}

// Follows a growing answer while the reader is at its end, and lets them scroll away.
function keepAtEnd(scroller, setAway) {
  let atEnd = true;
  const toEnd = () => { if (atEnd) scroller.scrollTop = scroller.scrollHeight; };
  const look = () => {
    atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR;
    setAway(!atEnd);
  };
  const watch = new ResizeObserver(toEnd);
  watch.observe(scroller.firstElementChild);
  scroller.addEventListener('scroll', look, { passive: true });
  toEnd();
  return () => {
    watch.disconnect();
    scroller.removeEventListener('scroll', look);
  };
}
