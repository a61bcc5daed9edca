// An entry of a conversation: what was asked, what was answered, and what can be done with it.
import { html, useEffect, useRef, useState } from '../vendor/preact.js';
import { plain, seconds } from '../formats.js';
import { CopyButton } from '../copy_button.js';
import { MarkdownView } from '../markdown_view.js';
import { imageAddress } from './attachments.js';
import { errorText, outputText, textOf } from './items.js';
import { figuresOf, waitingLine } from './small_print.js';
import { speak } from './sound.js';

function UserPart({ part }) {
  if (part.type === 'input_text') return html`<div>${String(part.text)}</div>`;
  if (part.type === 'input_file') return html`<div>PDF: ${String(part.filename || 'a file')}</div>`;
  const address = imageAddress(part.image_url);
  return address ? html`<img src=${address} alt="Image of the message" />` : html`<div>🖼 an image elsewhere</div>`;
}

function Editor({ text, done, cancel }) {
  const [written, write] = useState(text);
  const place = useRef(null);
  useEffect(() => place.current.focus(), []);
  const onKeyDown = (event) => { if (event.key === 'Escape') cancel(); };
  return html`<div class="body" onKeyDown=${onKeyDown}><label><span class="seen-by-readers">Edited message</span>
      <textarea rows="4" ref=${place} value=${written} onInput=${(event) => write(event.target.value)}></textarea></label>
    <div class="row"><button type="button" class="main small" disabled=${!written.trim()} onClick=${() => done(written)}>Send as a branch</button>
      <button type="button" class="small" onClick=${cancel}>Cancel</button></div></div>`;
}

function UserEntry({ entry, index, acts, idle }) {
  const [editing, edit] = useState(false);
  const button = useRef(null);
  const cancel = () => {
    edit(false);
    setTimeout(() => button.current?.focus());
  };
  const branch = (text) => {
    edit(false);
    const others = entry.parts.filter((part) => part.type !== 'input_text');
    acts.edit(index, [{ type: 'input_text', text }, ...others]);
  };
  return html`<article class="entry user" aria-label="You"><header>You</header>
    ${editing
      ? html`<${Editor} text=${textOf(entry)} done=${branch} cancel=${cancel} />`
      : html`<div class="body" dir="auto">${entry.parts.map((part) => html`<${UserPart} part=${part} />`)}</div>
        <div class="acts"><button type="button" class="quiet small" ref=${button} disabled=${!idle} onClick=${() => edit(true)}>Edit</button></div>`}
  </article>`;
}

function Reasoning({ part }) {
  const spent = part.seconds >= 0.1 ? ` for ${seconds(part.seconds)}` : ''; // less may be two pieces that came together
  const label = part.live.ended ? `Reasoned${spent}` : 'Reasons …';
  return html`<details class="fold reasoning"><summary>${label}</summary><${MarkdownView} live=${part.live} /></details>`;
}

const Written = ({ part }) => html`<${MarkdownView} live=${part.live} />`;

function Call({ part, answerable, result, setResult }) {
  return html`<details class="fold call" open><summary>Calls <code>${String(part.name)}</code></summary>
    <pre tabindex="0">${part.live.text}</pre>
    ${answerable && html`<label class="field"><span>Result of this call</span>
      <textarea rows="2" value=${result} onInput=${(event) => setResult(event.target.value)}></textarea></label>`}
  </details>`;
}

// The calls of an answer, whose results are sent together: a model waits for all of them.
function Calls({ parts, answerable, answer }) {
  const [results, set] = useState({});
  const send = () => answer(parts.map(({ callId }, at) => ({ callId, output: results[at] || '' })));
  return html`${parts.map((part, at) => html`<${Call} key=${at} part=${part} answerable=${answerable} result=${results[at] || ''}
      setResult=${(text) => set({ ...results, [at]: text })} />`)}
    ${answerable && html`<button type="button" class="small" onClick=${send}>${parts.length > 1 ? 'Send the results' : 'Send the result'}</button>`}`;
}

const nameOf = ({ server_label: server, name }) => html`<code>${plain(`${server}/${name}`)}</code>`;

function ServerCall({ part: { item, live } }) {
  const failed = (item.error ?? null) !== null;
  const result = failed ? errorText(item.error) : item.output ?? null;
  const spent = Number.isFinite(item.seconds) ? ` in ${seconds(item.seconds)}` : '';
  return html`<details class="fold own-call"><summary>${result === null ? 'Calls' : failed ? 'Failed to call' : 'Called'} ${nameOf(item)}${spent}</summary>
    <pre tabindex="0">${plain(live.text)}</pre>
    ${result !== null && html`<pre tabindex="0" class=${failed ? 'result problem' : 'result'}>${plain(result)}</pre>`}</details>`;
}

const Listed = ({ part: { item } }) => item.error && html`<p class="problem">${plain(item.error)}</p>`;

// Calls that wait for the reader. Once all are answered, the answer goes on.
function Approvals({ parts, answerable, answer }) {
  const [given, set] = useState({});
  const decide = (at, approve) => {
    const all = { ...given, [at]: approve };
    if (Object.keys(all).length < parts.length) set(all);
    else answer(parts.map(({ item }, place) => ({ id: item.call_id || item.id, approve: all[place] })));
  };
  return parts.map(({ item, live }, at) => html`<details class="fold approval" open key=${at}><summary>Asks to call ${nameOf(item)}</summary>
    <pre tabindex="0">${plain(live.text)}</pre>
    ${answerable && html`<div class="row">${[['Approve', true], ['Refuse', false]].map(([label, approve]) => html`
      <button type="button" class="small" aria-pressed=${given[at] === approve ? 'true' : 'false'} onClick=${() => decide(at, approve)}>${label}</button>`)}</div>`}
  </details>`);
}

function Spoken({ entry, voice }) {
  const [state, set] = useState({});
  const begin = async () => {
    set({ busy: true });
    try {
      set({ address: await speak(voice, textOf(entry)) });
    } catch (error) {
      set({ problem: error.message });
    }
  };
  if (state.address) return html`<audio controls autoplay src=${state.address}></audio>`;
  return html`<button type="button" class="quiet small" disabled=${state.busy} onClick=${begin}>${state.busy ? 'Speaks …' : 'Speak'}</button>
    ${state.problem && html`<span class="problem" role="alert">${state.problem}</span>`}`;
}

function AnswerActs({ entry, index, acts, voice }) {
  return html`<div class="acts">
    <${CopyButton} kind="quiet small" textOf=${() => textOf(entry)} />
    <button type="button" class="quiet small" onClick=${() => acts.retry(index)}>Retry</button>
    <button type="button" class="quiet small" onClick=${() => acts.branch(index + 1)}>Branch</button>
    ${voice && textOf(entry) && html`<${Spoken} entry=${entry} voice=${voice} />`}
  </div>`;
}

function Figures({ lines }) {
  if (!lines.length) return null;
  return html`<details class="small-print"><summary>${lines.slice(0, 2).join(' · ')}</summary>${lines.slice(2).join(' · ')}</details>`;
}

const PARTS = { text: Written, reasoning: Reasoning, mcp_call: ServerCall, mcp_list_tools: Listed };
const STATES = { stopped: 'Stopped', cut: 'Cut', failed: 'Failed' };

function AnswerEntry({ entry, index, isLast, acts, idle, voice }) {
  const name = entry.model || 'Assistant';
  const running = entry.state === 'running';
  const calls = entry.parts.filter(({ type }) => type === 'call');
  const asking = entry.parts.filter(({ type }) => type === 'mcp_approval_request');
  const answerable = idle && isLast && !running;
  return html`<article class="entry answer" aria-label=${`Answer of ${name}`} aria-busy=${running ? 'true' : 'false'}>
    <header>${name}</header>
    ${entry.parts.map((part, at) => PARTS[part.type] && html`<${PARTS[part.type]} key=${at} part=${part} />`)}
    ${calls.length > 0 && html`<${Calls} parts=${calls} answerable=${answerable} answer=${acts.sendResults} />`}
    ${asking.length > 0 && html`<${Approvals} parts=${asking} answerable=${answerable} answer=${acts.sendApprovals} />`}
    ${running && html`<p class="small-print working">${waitingLine(entry.waiting) || (entry.parts.length ? '' : 'Asked …')}</p>`}
    ${STATES[entry.state] && html`<p class=${entry.state === 'failed' ? 'problem' : 'faint'}>${entry.problem || STATES[entry.state]}</p>`}
    ${!running && html`<${Figures} lines=${figuresOf(entry)} />`}
    ${!running && idle && html`<${AnswerActs} entry=${entry} index=${index} acts=${acts} voice=${voice} />`}
  </article>`;
}

function ResultsEntry({ entry }) {
  return html`<article class="entry" aria-label="Tool result"><header>Tool result</header>
    ${entry.results.map(({ output }) => html`<details class="fold" open><summary>Result</summary><pre tabindex="0">${outputText(output)}</pre></details>`)}
  </article>`;
}

const ApprovalsEntry = ({ entry }) => html`<article class="entry" aria-label="Approval"><header>You</header>
    <p>${entry.answers.map(({ approve }) => (approve ? 'Approved' : 'Refused')).join(', ')}</p></article>`;

const VIEWS = { user: UserEntry, assistant: AnswerEntry, results: ResultsEntry, approvals: ApprovalsEntry };

export function EntryView(properties) {
  return html`<${VIEWS[properties.entry.kind]} ...${properties} />`;
}
