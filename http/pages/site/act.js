// A button whose work takes a while and may fail; what cannot be undone is asked twice.
import { html, useRef, useState } from './vendor/preact.js';

const SHOWN_MS = 20_000; // later it would tell of another state

// The button stays the same element, and is not disabled while it works: a reader's focus would fall off it.
export function Act({ label, name, run, twice = false, disabled = false }) {
  const [state, set] = useState({});
  const latest = useRef(0);
  const isBusy = state.busy === label; // under another label it does something else: unload what is being loaded
  const act = async () => {
    if (isBusy) return;
    if (twice && !state.asked) return set({ asked: true });
    latest.current += 1;
    const own = latest.current;
    const tell = (news) => { if (own === latest.current) set(news); };
    tell({ busy: label });
    try {
      tell({ done: await run((progress) => tell({ busy: label, progress })) });
      return setTimeout(() => tell({}), SHOWN_MS);
    } catch (error) {
      return tell({ problem: error.message });
    }
  };
  const written = isBusy ? `${label} …` : state.asked ? `Really ${label.toLowerCase()}?` : label;
  return html`<button type="button" class="small" disabled=${disabled} aria-disabled=${isBusy ? 'true' : null} aria-label=${name ? `${written} ${name}` : null}
      onClick=${act} onBlur=${() => state.asked && set({})}>${written}</button>
    ${state.progress && html`<span class="faint">${state.progress}</span>`}
    ${typeof state.done === 'string' && html`<span class="faint" role="status">${state.done}</span>`}
    ${state.problem && html`<span class="problem" role="alert">${state.problem}</span>`}`;
}
