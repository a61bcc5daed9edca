// A button whose work takes a while and may fail; what cannot be undone is asked twice.
import { html, useState } from '../vendor/preact.js';

export function Act({ label, name, run, twice = false, disabled = false }) {
  const [state, set] = useState({});
  const act = async () => {
    if (twice && !state.asked) return set({ asked: true });
    set({ busy: true });
    try {
      return set({ done: await run((progress) => set({ busy: true, progress })) });
    } catch (error) {
      return set({ problem: error.message });
    }
  };
  const written = state.busy ? `${label} …` : state.asked ? `Really ${label.toLowerCase()}?` : label;
  return html`<button type="button" class="small" disabled=${disabled || state.busy} aria-label=${name ? `${written} ${name}` : null}
      onClick=${act} onBlur=${() => state.asked && set({})}>${written}</button>
    ${state.progress && html`<span class="faint">${state.progress}</span>`}
    ${typeof state.done === 'string' && html`<span class="faint" role="status">${state.done}</span>`}
    ${state.problem && html`<span class="problem" role="alert">${state.problem}</span>`}`;
}
