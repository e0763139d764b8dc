package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/registry"
)

// The names in a cluster that a shell completes. A shell waits for them, so a completion takes completionTimeout at most,
// and one that fails offers nothing. Ids and steps come from a console, since only an index finds them fast.
const (
	completionTimeout = 1500 * time.Millisecond
	completionsMax    = 50
)

// completer returns the values that may be offered, each with an optional description after a tab.
type completer func(ctx context.Context, cmd *cobra.Command, args []string, prefix string) []string

// argumentCompleters complete arguments, by their names in Use.
var argumentCompleters = map[string]completer{
	"ID": completeIDs, "TASK": completeIDs, "STEP": completeSteps,
	"NAME/VERSION": completeVersions, "FILE|NAME[/VERSION]": completeWorkflows, "NAME[/VERSION]": completeWorkflows,
}

// flagCompleters complete the values of flags. --workflow of up, fork and plan also takes a file.
var flagCompleters = map[string]completer{
	"workflow": completeWorkflows, "step": completeSteps, "id-prefix": completeIDs,
	"step-in-error": completeOfWorkflows(func(w *consoleapi.Workflow) []string { return w.Steps }),
	"agent":         completeOfWorkflows(func(w *consoleapi.Workflow) []string { return w.Agents }),
}

// completeNames registers the completions in all commands.
func completeNames(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		completeNames(c)
	}
	if words := strings.Fields(cmd.Use); len(words) > 1 && argumentCompleters[argumentName(words[1])] != nil && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			return complete(completerOf(words[1:], len(args)), cmd, args, prefix)
		}
	}
	if cmd.Flags().Lookup("brokers") == nil {
		return
	}
	if err := cmd.RegisterFlagCompletionFunc("profile", completeProfiles); err != nil {
		panic(err) // registered twice
	}
	for name, of := range flagCompleters {
		if cmd.Flags().Lookup(name) == nil {
			continue
		}
		err := cmd.RegisterFlagCompletionFunc(name, func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			return complete(of, cmd, args, prefix)
		})
		if err != nil {
			panic(err) // registered twice
		}
	}
}

// argumentName returns an argument's name in Use: ID of "ID...", "ID," and "[ID...]".
func argumentName(word string) string {
	if strings.HasPrefix(word, "[") {
		word = strings.Trim(word, "[]")
	}
	return strings.TrimSuffix(strings.TrimSuffix(word, ","), "...")
}

// completerOf returns the completer of an argument; nil: none.
func completerOf(words []string, at int) completer {
	if strings.Contains(words[0], "...") {
		at = 0 // the first argument may be repeated
	}
	if at >= len(words) {
		return nil
	}
	return argumentCompleters[argumentName(words[at])]
}

func complete(of completer, cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	directive := cobra.ShellCompDirectiveNoFileComp
	if words := strings.Fields(cmd.Use); len(words) > 1 && strings.HasPrefix(words[1], "FILE") {
		directive = cobra.ShellCompDirectiveDefault
	}
	if of == nil || applySettings(cmd) != nil {
		return nil, directive
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	values := of(ctx, cmd, args, prefix)
	values = slices.DeleteFunc(values, func(v string) bool { return !strings.HasPrefix(v, prefix) })
	return values[:min(len(values), completionsMax)], directive
}

// completingConsole returns the console that a command would ask; nil: there is none.
func completingConsole(ctx context.Context, cmd *cobra.Command) *consoleapi.Client {
	text := func(name string) string {
		if f := cmd.Flags().Lookup(name); f != nil {
			return f.Value.String()
		}
		return ""
	}
	api := apiFlags{url: text("api"), tokenFile: text("api-token-file")}
	if api.url == "" { // commands that write have no --api
		api.url = apiAuto
	}
	if c, err := api.namedConsole(); err != nil || c != nil {
		if c == nil {
			return nil
		}
		return c.Client
	}
	cfg, err := connectionOf(cmd).kafka("waybill-completion")
	if err != nil || api.url == apiOff {
		return nil
	}
	of := consoleapi.System{ClusterID: clusterIDOf(ctx, cfg), Namespace: cfg.Namespace}
	if of.ClusterID == "" {
		return nil
	}
	base := findConsole(ctx, defaultConsole, of)
	if base == "" {
		return nil
	}
	c, err := newAPIClient(consoleapi.Config{URL: base, System: of}, true)
	if err != nil {
		return nil
	}
	return c.Client
}

// connectionOf returns the connection flags of a command by their values.
func connectionOf(cmd *cobra.Command) *connection {
	c := &connection{}
	into := &cobra.Command{}
	c.flags(into)
	into.Flags().VisitAll(func(f *pflag.Flag) {
		from := cmd.Flags().Lookup(f.Name)
		if from == nil || !from.Changed {
			return
		}
		values := []string{from.Value.String()}
		if many, is := from.Value.(pflag.SliceValue); is {
			values = many.GetSlice()
		}
		for _, v := range values {
			_ = into.Flags().Set(f.Name, v) // it was accepted before
		}
	})
	return c
}

// commandStates are the states in which tasks may take a command, by the command's name.
var commandStates = map[string][]events.TaskState{
	"resubmit": {events.StateError}, "release": {events.StateError},
	"cancel": {events.StatePending, events.StateProcessing, events.StateError, events.StateUndoing},
	"undo":   {events.StatePending, events.StateProcessing, events.StateError, events.StateProcessed},
	"wait":   {events.StatePending, events.StateProcessing, events.StateError, events.StateUndoing},
	"signal": {events.StatePending, events.StateProcessing},
}

func completeIDs(ctx context.Context, cmd *cobra.Command, args []string, prefix string) (values []string) {
	c := completingConsole(ctx, cmd)
	if c == nil {
		return nil
	}
	f := consoleapi.Filter{IDPrefix: prefix, States: words(commandStates[cmd.Name()])}
	var page consoleapi.TaskPage
	if c.Get(ctx, "/tasks", url.Values{"filter": {f.String()}, "page_size": {strconv.Itoa(completionsMax)}}, &page) != nil {
		return nil
	}
	for _, t := range page.Tasks {
		if !slices.Contains(args, t.ID) {
			values = append(values, fmt.Sprintf("%s\t%s %s", t.ID, printable(t.Workflow), stateText(t.State)))
		}
	}
	return values
}

// completeSteps completes the steps of the task that the first argument names.
func completeSteps(ctx context.Context, cmd *cobra.Command, args []string, _ string) (values []string) {
	c := completingConsole(ctx, cmd)
	if c == nil || len(args) == 0 {
		return nil
	}
	var t consoleapi.Task
	if c.Get(ctx, consoleapi.TaskPath(args[0]), nil, &t) != nil {
		return nil
	}
	for _, s := range t.Steps {
		if s.State == events.StepError || cmd.Name() != "resubmit" && cmd.Name() != "release" {
			values = append(values, s.ID+"\t"+stepStateText(t.State, s.State))
		}
	}
	return values
}

// workflowList asks a console for the workflows; nil if there is none.
func workflowList(ctx context.Context, cmd *cobra.Command) []consoleapi.Workflow {
	c := completingConsole(ctx, cmd)
	var list consoleapi.WorkflowList
	if c == nil || c.Get(ctx, "/workflows", nil, &list) != nil {
		return nil
	}
	return list.Workflows
}

// completeOfWorkflows completes names that each workflow has several of.
func completeOfWorkflows(names func(*consoleapi.Workflow) []string) completer {
	return func(ctx context.Context, cmd *cobra.Command, _ []string, _ string) (values []string) {
		for _, w := range workflowList(ctx, cmd) {
			values = append(values, names(&w)...)
		}
		slices.Sort(values)
		return slices.Compact(values)
	}
}

// completeWorkflows completes NAME and NAME/VERSION.
func completeWorkflows(ctx context.Context, cmd *cobra.Command, args []string, prefix string) []string {
	versions := completeVersions(ctx, cmd, args, prefix)
	if strings.Contains(prefix, "/") {
		return versions
	}
	for i, v := range versions {
		versions[i] = v[:strings.LastIndexByte(v, '/')]
	}
	slices.Sort(versions)
	return slices.Compact(versions)
}

// completeVersions completes NAME/VERSION. Without a console it reads the definitions from the log.
func completeVersions(ctx context.Context, cmd *cobra.Command, _ []string, _ string) (values []string) {
	for _, w := range workflowList(ctx, cmd) {
		values = append(values, events.DefinitionKey(w.Workflow, w.Version))
	}
	if values != nil {
		return values
	}
	cfg, err := connectionOf(cmd).kafka("waybill-completion")
	if err != nil {
		return nil
	}
	admin, err := kafkaadmin.Open(cfg)
	if err != nil {
		return nil
	}
	defer admin.Close()
	if instance.CheckReachable(ctx, admin) != nil {
		return nil
	}
	list, err := registry.List(ctx, admin, cfg.Namespace)
	if err != nil {
		return nil
	}
	for i := range list {
		values = append(values, list[i].Key())
	}
	return values
}
