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
