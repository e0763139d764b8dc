import { Component, h } from 'preact';

/** A component that is drawn again only if same(old, new) of its properties is false. */
export function memo(of, same) {
  return class extends Component {
    shouldComponentUpdate(next) {
      return !same(this.props, next);
    }

    render(props) {
      return h(of, props);
    }
  };
}

/** Shows what is in it. If that throws, says so in its place, and the rest of the page remains. */
export class Guard extends Component {
  componentDidCatch(fault) {
    this.setState({ fault });
    setTimeout(() => { throw fault; }); // for the browser's log
  }

  render({ children }, { fault }) {
    return fault ? h('p', { class: 'problem', role: 'alert' }, `This part of the page failed: ${fault.message}`) : children;
  }
}
