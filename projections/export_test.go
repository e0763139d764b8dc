package projections

// Hot is the number of open tasks that are in memory decoded.
func (v *Tasks) Hot() int { return len(v.open.hot) }

// Check finds what Tasks.open holds that can't be.
func (v *Tasks) Check() string { return v.open.check(&v.snap) }
