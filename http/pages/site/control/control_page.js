// The control room.
import { html } from '../vendor/preact.js';

export const ControlPage = () => html`<p class="hint">…</p>`;
