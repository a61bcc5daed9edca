// A conversation with one model: its entries, its settings, and the turn that is being answered.
import { stream } from '../api.js';
import { AnswerEvents } from './answer_events.js';
import { assistantEntry, itemsOf, resultsEntry, textOf, userEntry } from './items.js';
import { requestOptions } from './options.js';

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
    this.changed = () => {};
    this.turnEnded = async () => {};
  }

  get isAnswering() {
    return this.aborter !== null;
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

  async retry(index) {
    for (const entry of this.entries.splice(index)) this.dropped.push(...entry.ids);
    await this.answer();
  }

  stop() {
    this.aborter?.abort();
  }

  // A new conversation with the entries before `index`.
  branch(index) {
    const copies = this.entries.slice(0, index).map((entry) => ({ ...entry, ids: [] }));
    const branch = new Conversation(this.model, { ...this.options }, copies);
    branch.title = `${this.title} (branch)`.slice(0, 80);
    return branch;
  }

  async answer() {
    const input = this.entries.flatMap(itemsOf);
    const entry = assistantEntry(this.model);
    this.entries.push(entry);
    this.aborter = new AbortController();
    const events = new AnswerEvents(entry, () => this.changed());
    this.changed();
    try {
      const body = {
        model: this.model, input, stream: true, store: false, truncation: 'auto', include_explain: true,
        ...requestOptions(this.options),
      };
      const options = { method: 'POST', body, signal: this.aborter.signal };
      await stream('v1/responses', options, (_, event) => events.receive(event));
      if (entry.state === 'running') events.fail('The stream ended before the answer did.');
    } catch (error) {
      if (this.aborter.signal.aborted) entry.state = 'stopped';
      else events.fail(error.message);
    }
    this.aborter = null;
    events.end();
    await this.turnEnded();
  }
}
