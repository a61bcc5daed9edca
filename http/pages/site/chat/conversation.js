// A conversation with one model: its entries, its settings, and the turn that is being answered.
import { ApiError, post, stream } from '../api.js';
import { AnswerEvents } from './answer_events.js';
import { approvalsEntry, assistantEntry, itemsOf, resultsEntry, textOf, userEntry } from './items.js';
import { jsonProblem, requestOptions } from './options.js';
import { chosenServers, offeredServers } from './servers.js';

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 5_000;
export const OWN = 'tab_'; // beginning of an id of this tab, which the server does not know

export class Conversation {
  constructor(model = '', options = {}, entries = []) {
    this.model = model;
    this.options = options;
    this.entries = entries;
    this.id = null;
    this.title = '';
    this.partner = null; // id of the conversation beside it, with another model
    this.isSecond = false; // of the two
    this.dropped = []; // ids of stored items that are no longer part of it
    this.aborter = null;
    this.events = null; // of the answer that is being read
    this.isBackground = false; // the server writes and keeps it, whoever reads
    this.stopping = false;
    this.isLeft = false;
    this.changed = () => {};
    this.keep = async () => {}; // stores what is new
    this.kept = Promise.resolve(); // once what was new is stored
    this.turnEnded = async () => {};
  }

  get isAnswering() {
    return this.aborter !== null;
  }

  get isStored() {
    return Boolean(this.id) && !this.id.startsWith(OWN);
  }

  get settingsProblem() {
    return jsonProblem(this.options.schema, 'object') || jsonProblem(this.options.tools, 'array');
  }

  async send(parts) {
    if (!this.title) this.title = textOf({ parts }).trim().slice(0, 80) || 'Untitled';
    this.entries.push(userEntry(parts));
    await this.answer();
  }

  async sendResults(results) {
    this.entries.push(resultsEntry(results));
    await this.answer();
  }

  async sendApprovals(answers) {
    this.entries.push(approvalsEntry(answers));
    await this.answer();
  }

  // The answer that an answer goes on with: what was approved once is asked for again, and not called twice.
  beginOf(index) {
    while (this.entries[index - 1]?.kind === 'approvals') index -= 2;
    return index;
  }

  async retry(index) {
    if (this.settingsProblem) return; // the composer tells it, and the answer is not lost
    for (const entry of this.entries.splice(this.beginOf(index))) this.dropped.push(...entry.ids);
    await this.answer();
  }

  // Those that are chosen, and those whose calls were approved.
  async servers() {
    const [asking, answers] = this.entries.slice(-3);
    const approved = answers?.kind === 'approvals' ? asking.parts.filter(({ type }) => type === 'mcp_approval_request') : [];
    return [...new Set([...chosenServers(this.options, await offeredServers()), ...approved.map(({ item }) => item.server_label)])];
  }

  // A stored answer ends by itself once it is cancelled; its text is kept.
  stop() {
    if (!this.isAnswering || this.stopping) return;
    this.stopping = true;
    if (!this.isBackground) this.aborter.abort();
    else if (this.events.id) this.cancel();
  }

  cancel() {
    post(`v1/responses/${this.events.id}/cancel`).catch(() => this.aborter?.abort());
  }

  // Somebody looks at another conversation: the server goes on by itself, and is asked again later.
  leave() {
    this.isLeft = true;
    if (this.isBackground && this.events.id) this.aborter?.abort();
  }

  // A new conversation with the entries before `index`.
  branch(index) {
    const copies = this.entries.slice(0, index).map((entry) => ({ ...entry, ids: [] }));
    const branch = new Conversation(this.model, { ...this.options }, copies);
    Object.assign(branch, { title: `${this.title} (branch)`.slice(0, 80), isBranch: true });
    return branch;
  }

  // The question is stored before the answer is asked for; a stored answer needs no reader.
  async answer() {
    const input = this.entries.flatMap(itemsOf);
    this.begin();
    await this.keep();
    this.isBackground = this.isStored && !this.hasUnsaved;
    const place = this.isBackground ? { input: [], conversation: this.id, background: true } : { input, store: false };
    const servers = await this.servers();
    if (this.settingsProblem) this.events.fail(`Settings: ${this.settingsProblem}`);
    else if (!this.stopping) {
      const body = { model: this.model, stream: true, truncation: 'auto', include_explain: true, ...requestOptions(this.options, servers), ...place };
      return this.read('v1/responses', { method: 'POST', body });
    }
    return this.ended();
  }

  // Goes on with an answer that the server has begun.
  async follow(id) {
    this.begin();
    this.isBackground = true;
    Object.assign(this.events, { id, isReplayed: true });
    await this.read(`v1/responses/${id}?stream=true`, {});
  }

  // The store refused something.
  get hasUnsaved() {
    return this.dropped.length > 0 || this.entries.some((entry) => !entry.ids.length && entry.state !== 'running' && itemsOf(entry).length);
  }

  begin() {
    const entry = assistantEntry(this.model);
    this.entries.push(entry);
    Object.assign(this, { aborter: new AbortController(), stopping: false, isLeft: false, isBackground: false });
    this.events = new AnswerEvents(entry, () => this.changed());
    this.changed();
  }

  async read(path, options) {
    const { events, aborter: { signal } } = this;
    for (let pause = FIRST_PAUSE_MS; events.entry.state === 'running' && !signal.aborted;) {
      const before = events.number;
      try {
        await stream(path, { ...options, signal }, (_, event) => this.receive(event));
        if (events.entry.state === 'running') throw new ApiError(0, 'unreachable', 'The stream ended before the answer did.');
      } catch (error) {
        if (signal.aborted) break;
        const isLater = this.isBackground && events.id && (error.status === 0 || error.status === 503);
        if (isLater) {
          events.lose();
          pause = events.number > before ? FIRST_PAUSE_MS : Math.min(2 * pause, LONGEST_PAUSE_MS);
          await new Promise((resolve) => { setTimeout(resolve, pause); signal.onabort = resolve; });
          path = `v1/responses/${events.id}?stream=true${events.number < 0 ? '' : `&starting_after=${events.number}`}`;
          options = {};
        } else if (events.id) events.cut(error.message);
        else events.fail(error.message);
      }
    }
    if (this.isLeft && this.isBackground) this.aborter = null;
    else await this.ended();
  }

  async ended() {
    this.aborter = null;
    this.events.end();
    await this.turnEnded();
  }

  receive(event) {
    const isNew = !this.events.id;
    this.events.isKept = this.isBackground;
    this.events.receive(event);
    if (!isNew || !this.events.id || !this.isBackground) return;
    if (this.isLeft) this.aborter.abort();
    else if (this.stopping) this.cancel();
  }
}
