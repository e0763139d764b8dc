package main

import "github.com/spf13/cobra"

// taskCommand is a command on tasks. It exists twice, as `waybill task NAME` and as `waybill NAME`, from one definition.
type taskCommand struct {
	new       func() *cobra.Command
	belowTask bool // the pages describe `waybill task NAME`; the other one is its alias
}

var taskCommands = []taskCommand{
	{newTaskList, true}, {newTaskGet, true}, {newTaskWhy, true}, {newTaskItems, true}, {newTaskWait, true}, {newCancel, true},
	{newTimeline, false}, {newResubmit, false}, {newUndo, false}, {newRelease, false}, {newSignal, false},
}

// aliasMark marks commands that are described under another path.
const aliasMark = "waybill_alias"

// build returns one of the two commands.
func (c *taskCommand) build(alias bool) *cobra.Command {
	cmd := c.new()
	if alias {
		cmd.Annotations = map[string]string{aliasMark: ""}
	}
	return cmd
}

func isAlias(cmd *cobra.Command) bool {
	_, is := cmd.Annotations[aliasMark]
	return is
}

// aliasOf returns the path of the other command of a taskCommand; "": there is none.
func aliasOf(cmd *cobra.Command) string {
	for _, c := range taskCommands {
		if made := c.new(); made.Name() == cmd.Name() {
			if cmd.Parent() == cmd.Root() {
				return cmd.Root().Name() + " task " + cmd.Name()
			}
			if cmd.Parent().Name() == "task" {
				return cmd.Root().Name() + " " + cmd.Name()
			}
		}
	}
	return ""
}

// The groups of commands in the help of waybill.
var commandGroups = []struct {
	title string
	names []string
}{
	{"Try it", []string{"demo", "up"}},
	{"Roles", []string{"scheduler", "supervisor", "agent", "console"}},
	{"Tasks (all but submit also as `waybill task NAME`)", []string{"submit", "task", "list", "get", "timeline", "why", "items", "wait", "cancel", "resubmit", "undo", "release", "signal"}},
	{"Definitions and topics", []string{"workflow", "schedule", "intake", "topics"}},
	{"Operation", []string{"top", "alerts", "errors", "batch", "deadletters", "doctor", "open"}},
	{"History", []string{"replay", "export", "view", "verify"}},
}

// groupCommands assigns the commands to their groups.
func groupCommands(root *cobra.Command) {
	for _, g := range commandGroups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, c := range root.Commands() {
			for _, name := range g.names {
				if c.Name() == name {
					c.GroupID = g.title
				}
			}
		}
	}
}
