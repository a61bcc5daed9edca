// The control room: everything from /admin and its events, in tabs.
import { clock } from '../formats.js';
import { html, useEffect, useReducer, useState } from '../vendor/preact.js';
import { Connection } from './connection.js';
import { DownloadsTab } from './downloads_tab.js';
import { InspectorTab } from './inspector_tab.js';
import { KeysTab } from './keys_tab.js';
import { LogTab } from './log_tab.js';
import { ModelsTab } from './models_tab.js';
import { RemotesTab } from './remotes_tab.js';
import { RequestsTab } from './requests_tab.js';
import { SettingsTab } from './settings_tab.js';
import { ToolsTab } from './tools_tab.js';
import { UsageTab } from './usage_tab.js';

const TABS = {
  models: ['Models', ModelsTab], requests: ['Requests', RequestsTab], tools: ['Tools', ToolsTab], remotes: ['Remotes', RemotesTab], downloads: ['Downloads', DownloadsTab], log: ['News and log', LogTab],
  settings: ['Settings', SettingsTab], keys: ['Keys', KeysTab], usage: ['Usage and audit', UsageTab], inspector: ['Inspector', InspectorTab],
};

// Tabs of what this server does not keep, or has not.
const missingOf = (status) => [
  status.audit === false && 'usage', status.inspector === false && 'inspector', !status.mcp?.length && 'tools', !status.remotes?.length && 'remotes',
];

export function ControlPage({ path }) {
  const [, changed] = useReducer((number) => number + 1, 0);
  const [connection, connect] = useState(null);
  useEffect(() => {
    let made = null;
    const open = () => {
      made ??= new Connection(changed);
      connect(made);
    };
    const close = () => {
      made?.close();
      made = null;
    };
    open();
    // A browser that keeps a left page for its “back” keeps its streams too, and has six for a server.
    window.addEventListener('pagehide', close);
    window.addEventListener('pageshow', open);
    return () => {
      window.removeEventListener('pagehide', close);
      window.removeEventListener('pageshow', open);
      close();
    };
  }, []);
  if (!connection?.status) return html`<p class=${connection?.problem ? 'hint problem' : 'hint'}>${connection?.problem || 'Loading …'}</p>`;
  const name = Object.hasOwn(TABS, path[0] ?? '') ? path[0] : 'models';
  const [title, Tab] = TABS[name];
  return html`<div class="control">
    <nav class="tabs" ref=${showCurrent} aria-label="Control room">${Object.entries(TABS).filter(([each]) => !missingOf(connection.status).includes(each)).map(([each, [label]]) => html`<a key=${each} href=${`#control/${each}`} aria-current=${each === name ? 'page' : null}>${label}</a>`)}</nav>
    <div class="sheet" tabindex="0" role="region" aria-label=${title}>
      <h1>${title}</h1>
      <${ServerLine} connection=${connection} />
      <${Tab} key=${name} connection=${connection} />
    </div></div>`;
}

// On a narrow screen the tabs scroll.
const showCurrent = (tabs) => tabs?.querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });

function ServerLine({ connection }) {
  const { status, isConnected, restarts } = connection;
  const state = isConnected ? status.status : 'reconnecting';
  return html`<p class="server"><span class=${`state ${state}`}>${state}</span> Greenroom ${status.version}, process ${status.pid}, since ${clock(status.started_at)}${
    restarts ? `, restarted ${restarts === 1 ? 'once' : `${restarts} times`} since this page opened` : ''}${status.database ? '' : ', nothing is stored'}</p>
    ${status.problems.map((each) => html`<p class="problem">${each}</p>`)}`;
}
