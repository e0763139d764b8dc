package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/batch"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/text"
)

// batchTool is a command about batches.
type batchTool struct {
	tool
	api apiFlags
}

func (t *batchTool) flags(cmd *cobra.Command) {
	t.tool.flags(cmd)
	t.api.flags(cmd)
}

// ask asks a console, or one in this process, which reads the topic of batches.
func (t *batchTool) ask(cmd *cobra.Command, ask func(*apiClient) error) error {
	q := queryFlags{api: t.api}
	return q.query(cmd, &t.tool, func(int32) indexOptions { return indexOptions{batches: true} }, ask)
}

func newBatch() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "batch",
		Short: "Show, compare and stop batches, which send one command to many tasks",
		Long: `Show, compare and stop batches. A batch sends one command to many tasks. Batches are created by resubmit, undo and
cancel with --filter, by 'waybill workflow migrate', and on a console's page. A console runs them. If it is killed,
another one continues. Batches are kept for 30 days.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBatchList(), newBatchGet(), newBatchResults(), newBatchCompare(), newBatchStop())
	return cmd
}

func newBatchList() *cobra.Command {
	var t batchTool
	limit := 50
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List batches, the newest first",
		Example: "  waybill batch list",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > consoleapi.PageSizeMax {
				return usage("--limit %d: must be 1 to %d", limit, consoleapi.PageSizeMax)
			}
			return t.ask(cmd, func(c *apiClient) error {
				l, err := c.Batches(cmd.Context(), limit)
				if err != nil {
					return err
				}
				return printList(&t.output, cmd.OutOrStdout(), "BATCH STATE COMMAND TASKS WAITING CREATED REASON STOPPED", l.Batches, func(b consoleapi.Batch) []string {
					return []string{idText(b.ID), b.State, string(b.Command), strconv.Itoa(b.Tasks), strconv.Itoa(b.Counts[batch.Waiting]), tableTime(b.CreatedAt), text.Shorten(b.Reason, 40), text.Shorten(b.Why, 60)}
				})
			})
		},
	}
	t.flags(cmd)
	cmd.Flags().IntVar(&limit, "limit", limit, "maximum number of batches to show")
	return cmd
}

func newBatchGet() *cobra.Command {
	var t batchTool
	cmd := &cobra.Command{
		Use:     "get BATCH",
		Short:   "Show a batch: its command, and the number of tasks by result",
		Example: "  waybill batch get 0198c0de-0000-7000-8000-000000000000",
		Args:    arguments("a batch's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.ask(cmd, func(c *apiClient) error {
				b, err := c.Batch(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return t.printBatch(cmd.OutOrStdout(), &b)
			})
		},
	}
	t.flags(cmd)
	return cmd
}

// printBatch prints a batch.
func (t *batchTool) printBatch(out io.Writer, b *consoleapi.Batch) error {
	return t.printObject(out, b, func(out io.Writer) error {
		x := events.Control{Task: text.Count(b.Tasks, "task"), Command: b.Command, Step: b.Step, Keep: b.Keep, Processed: b.Processed, Version: b.Version, DryRun: b.DryRun}
		fmt.Fprintf(out, "batch %s: %s\n%s\n", printable(b.ID), b.State, commandText(&x))
		printFields(out, [][2]string{{"filter", b.Filter}, {"by", b.By + b.Claimed}, {"reason", b.Reason}, {"stopped", b.Why}, {"trouble", b.Trouble}})
		_, err := fmt.Fprintf(out, "created %s, ended %s\n%s\n", tableTime(b.CreatedAt), tableTime(b.EndedAt), countsText(b))
		return err
	})
}

func newBatchResults() *cobra.Command {
	var t batchTool
	cmd := &cobra.Command{
		Use:     "results BATCH",
		Short:   "List the result of each task of a batch",
		Example: "  waybill batch results 0198c0de-0000-7000-8000-000000000000 -o jsonl",
		Args:    arguments("a batch's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.ask(cmd, func(c *apiClient) error {
				results, err := c.BatchResults(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return printBatchResults(cmd.OutOrStdout(), &t.output, results)
			})
		},
	}
	t.flags(cmd)
	return cmd
}

func newBatchCompare() *cobra.Command {
	var t batchTool
	cmd := &cobra.Command{
		Use:   "compare DRY-RUN BATCH",
		Short: "List the tasks for which a batch and its dry run differ",
		Long: `List the tasks for which a batch and its dry run differ, such as a dry run of 'waybill workflow migrate'. A task is
listed if one of them accepted it and the other refused it, if they refused it for different reasons, or if only one
of them has it. Tasks may have advanced in between. Exit code 1 if a task is listed.`,
		Example: "  waybill batch compare 0198c0de-0000-7000-8000-000000000000 0198c0de-0000-7000-8000-000000000001",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return nil
			}
			return usage("`%s` needs the ids of two batches: the dry run, and the batch that followed", cmd.CommandPath())
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.ask(cmd, func(c *apiClient) error { return t.compare(cmd, c, args[0], args[1]) })
		},
	}
	t.flags(cmd)
	return cmd
}

func (t *batchTool) compare(cmd *cobra.Command, c *apiClient, dryRun, id string) error {
	said, err := c.BatchResults(cmd.Context(), dryRun)
	if err != nil {
		return err
	}
	did, err := c.BatchResults(cmd.Context(), id)
	if err != nil {
		return err
	}
	differ := batch.Compare(said, did)
	err = printList(&t.output, cmd.OutOrStdout(), "TASK DRY-RUN BATCH WHY-DRY-RUN WHY-BATCH", differ, func(d batch.Difference) []string {
		return []string{idText(d.Task), dash(string(d.Said)), dash(string(d.Did)), text.Shorten(dash(d.SaidWhy), 100), text.Shorten(dash(d.DidWhy), 100)}
	})
	if err == nil && len(differ) > 0 {
		return exit(exitOther, "%d of %s %s", len(differ), text.Count(max(len(said), len(did)), "task"), text.Verb(len(differ), "differs", "differ"))
	}
	return err
}

func newBatchStop() *cobra.Command {
	var t batchTool
	why := ""
	cmd := &cobra.Command{
		Use:   "stop BATCH",
		Short: "Stop a batch: it sends no more commands",
		Long: `Stop a batch. It sends no more commands. Commands that were sent still take effect. A stopped batch can't be
continued: create a new one.`,
		Example: "  waybill batch stop 0198c0de-0000-7000-8000-000000000000 --why 'the wrong filter'",
		Args:    arguments("a batch's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if why == "" {
				return usage("give the reason, which is logged: --why 'the wrong filter'")
			}
			return t.ask(cmd, func(c *apiClient) error {
				b, err := c.StopBatch(cmd.Context(), args[0], why)
				if err != nil {
					return err
				}
				return t.printBatch(cmd.OutOrStdout(), &b)
			})
		},
	}
	t.flags(cmd)
	cmd.Flags().StringVar(&why, "why", "", "reason, recorded in the log (required)")
	commandLineOnly(cmd.Flags(), "why")
	return cmd
}
