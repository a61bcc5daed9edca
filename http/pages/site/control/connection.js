// The server's news, for as long as the page is open: it connects again after each end, and says so.
import { get, stream } from '../api.js';

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 5_000;
const KEPT = 300;

export class Connection {
  constructor(changed) {
    this.changed = changed;
    this.events = []; // the newest first
    this.status = null;
    this.problem = '';
    this.isConnected = false;
    this.restarts = 0;
    this.aborter = new AbortController();
    this.run();
  }

  close() {
    this.aborter.abort();
    say('');
  }

  async run() {
    const { signal } = this.aborter;
    let pause = FIRST_PAUSE_MS;
    while (!signal.aborted) {
      try {
        await this.greet();
        pause = FIRST_PAUSE_MS;
        await stream('admin/events', { signal }, (name, data) => this.receive(name, data));
      } catch (error) {
        this.problem = error.message;
        // Refused is not lost: another try would be refused too, until there is another key.
        if (error.status && error.status < 500) pause = LONGEST_PAUSE_MS;
      }
      if (signal.aborted) return;
      this.isConnected = false;
      say('Reconnecting …');
      this.changed();
      await new Promise((resolve) => { setTimeout(resolve, pause); });
      pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
    }
  }

  async greet() {
    const status = await get('admin/status', { signal: this.aborter.signal });
    const before = this.status;
    if (before && before.pid !== status.pid) {
      this.restarts += 1;
      this.receive('restart', { detail: `The server is another process now: ${status.pid} after ${before.pid}`, time: status.started_at });
    }
    this.status = status;
    this.problem = '';
    this.isConnected = true;
    say('');
    this.changed();
  }

  receive(name, data) {
    const [latest] = this.events;
    // The progress of one load is one line, which changes.
    const goesOn = latest && latest.name === name && latest.model === data.model && ['load', 'download'].includes(name);
    this.events = [{ time: Date.now() / 1000, detail: data.error?.message, ...data, name }, ...(goesOn ? this.events.slice(1) : this.events)].slice(0, KEPT);
    this.changed();
  }
}

const say = (line) => { document.getElementById('status').textContent = line; };
