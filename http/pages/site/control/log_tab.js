// The models' news, and the log as it comes.
import { stream } from '../api.js';
import { bytes, clock, percent } from '../formats.js';
import { html, useEffect, useReducer, useRef, useState } from '../vendor/preact.js';

const KEPT = 500;
const OWN = /^\/(admin|pages|metrics|v1\/models$|$)/;
const REQUEST = /^request /; // its figures that are zero tell nothing
const TOLD = new Set(['event', 'level', 'timestamp']);

function newsLine(news) {
  const told = [news.name, news.model, news.stage];
  if (news.fraction !== undefined && news.stage !== 'ready') told.push(percent(news.fraction));
  if (news.received !== undefined) told.push(`${bytes(news.received)} of ${bytes(news.bytes)}`);
  if (news.freed_bytes) told.push(`${bytes(news.freed_bytes)} freed`);
  if (news.for) told.push(`for ${news.for}`);
  if (news.detail) told.push(news.detail);
  return told.filter(Boolean).join(' · ');
}

function useLog(connection) {
  const lines = useRef([]);
  const [, changed] = useReducer((number) => number + 1, 0);
  useEffect(() => () => { lines.current = []; }, [connection]); // another one begins with the latest lines again
  useEffect(() => {
    const aborter = new AbortController();
    connection.aborter.signal.addEventListener('abort', () => aborter.abort());
    let frame = 0;
    // A burst of lines is one look at the page.
    const later = () => { frame ||= setTimeout(() => { frame = 0; changed(); }, 200); };
    stream(`admin/logs?lines=${KEPT}`, { signal: aborter.signal }, (name, line) => {
      if (name !== 'log') return; // a revoked key, which the news tell
      lines.current = [...lines.current.slice(1 - KEPT), line];
      later();
    }).catch(() => {}); // the connection says that it is lost, and counts the restart
    return () => {
      aborter.abort();
      clearTimeout(frame);
    };
  }, [connection, connection.restarts, connection.isConnected]);
  return lines.current;
}

export function LogTab({ connection }) {
  const lines = useLog(connection);
  const [words, search] = useState('');
  const [own, showOwn] = useState(false);
  const shown = lines.filter((line) => (own || line.method !== 'GET' || !OWN.test(line.path))
    && JSON.stringify(line).toLowerCase().includes(words.toLowerCase()));
  return html`<h2>News of models and downloads</h2>
    <ol class="lines" tabindex="0" aria-label="News of models and downloads">${connection.events.map((news) => html`<li><time>${clock(news.time)}</time> ${newsLine(news)}</li>`)}</ol>
    ${!connection.events.length && html`<p class="faint">Nothing yet.</p>`}
    <h2>Log</h2>
    <div class="row"><label>Only lines with <input value=${words} onInput=${(event) => search(event.target.value)} /></label>
      <label><input type="checkbox" checked=${own} onChange=${(event) => showOwn(event.target.checked)} /> also what this page asks</label></div>
    <ol class="lines mono" tabindex="0" aria-label="Log">${shown.slice().reverse().map((line) => html`<li class=${line.level === 'error' || line.level === 'warning' ? 'problem' : ''}>
      <time>${String(line.timestamp || '').slice(11, 19)}</time> <strong>${String(line.event)}</strong> ${Object.entries(line)
        .filter(([name, value]) => !TOLD.has(name) && (value !== 0 || !REQUEST.test(line.event))).map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`).join(' ')}</li>`)}</ol>`;
}
