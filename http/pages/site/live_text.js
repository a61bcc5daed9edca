// A text that grows: views follow it a frame at a time, however fast it comes.

export class LiveText {
  constructor(text) {
    this.text = text ?? '';
    this.ended = text !== undefined;
    this.followers = new Set();
  }

  append(piece) {
    this.text += piece;
    for (const follow of this.followers) follow();
  }

  end() {
    this.ended = true;
    for (const follow of this.followers) follow();
  }
}
