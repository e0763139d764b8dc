package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/internal/text"
	"github.com/waybill-run/waybill/internal/workflowtest"
)

type workflowTestOptions struct {
	output
	pattern string
	update  bool
}

func newWorkflowTest() *cobra.Command {
	var o workflowTestOptions
	cmd := &cobra.Command{
		Use:   "test FILE|DIRECTORY...",
		Short: "Run the tests of a definition, without a cluster",
		Long: `Run the tests of workflow definitions, in virtual time and without a cluster. A test file has the name of
its definition with ` + workflowtest.Suffix + ` instead of .yaml. It says for each case what is submitted, how agents reply, what
operators do, and how the task must end. In a directory, all files of that name are run.

The scheduler's own decisions and the supervisor's own recoveries are run, so a case ends as it would on a
cluster. Exit code 1 if a case differs from its expectation, 2 if there is a mistake in a file.

--update writes what happened into the expectations of the cases that differ. Read the difference before
you commit it.`,
		Example: `  waybill workflow test docs/examples
  waybill workflow test docs/examples/checkout.test.yaml --run bank --update`,
		Args: atLeastOneFile,
		RunE: func(cmd *cobra.Command, paths []string) error { return runWorkflowTest(cmd, &o, paths) },
	}
	o.output.flags(cmd)
	cmd.Flags().StringVar(&o.pattern, "run", "", "run only cases whose names match this regular expression")
	cmd.Flags().BoolVarP(&o.update, "update", "u", false, "write what happened into the expectations of cases that differ")
	cmd.Flags().String("config", "", "YAML file of settings; its keys are flag names")
	commandLineOnly(cmd.Flags(), "run", "update")
	return cmd
}

func runWorkflowTest(cmd *cobra.Command, o *workflowTestOptions, paths []string) error {
	pattern, err := regexp.Compile(o.pattern)
	if err != nil {
		return usage("--run: %w", err)
	}
	names, err := testFiles(paths)
	if err != nil {
		return err
	}
	files, err := loadTests(names)
	if err != nil {
		return err
	}
	var results []*workflowtest.Result
	for _, f := range files {
		list := f.Run(pattern.MatchString)
		results = append(results, list...)
		if !o.update {
			continue
		}
		if err := f.Update(list); err != nil {
			return exit(exitUsage, "%w", err)
		}
	}
	if len(results) == 0 {
		return usage("no case matches --run %q", o.pattern)
	}
	if err := o.print(cmd.OutOrStdout(), results); err != nil {
		return err
	}
	return testError(results, o.update)
}

// testFiles returns the files that were named, and those of directories.
func testFiles(paths []string) ([]string, error) {
	var names []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, exit(exitUsage, "%w", err)
		}
		if !info.IsDir() {
			names = append(names, path)
			continue
		}
		before := len(names)
		err = filepath.WalkDir(path, func(name string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(name, workflowtest.Suffix) {
				names = append(names, name)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(names) == before {
			return nil, usage("%s has no file with a name *%s", path, workflowtest.Suffix)
		}
	}
	return names, nil
}

// loadTests loads test files. The error lists the mistakes of all.
func loadTests(names []string) ([]*workflowtest.File, error) {
	var files []*workflowtest.File
	var faults []string
	for _, name := range names {
		f, err := workflowtest.Load(name)
		if err != nil {
			faults = append(faults, err.Error())
			continue
		}
		files = append(files, f)
	}
	if len(faults) > 0 {
		return nil, usage("the tests can't be run:\n%s", strings.Join(faults, "\n"))
	}
	return files, nil
}

func (o *workflowTestOptions) print(out io.Writer, results []*workflowtest.Result) error {
	if o.format != formatTable {
		return printList(&o.output, out, "", results, nil)
	}
	for _, r := range results {
		fmt.Fprintf(out, "%-7s  %s:%d: %s (%s, %s, %s)\n", verdict(r), r.File, r.Line, r.Case, dash(r.State), text.Count(r.Events, "event"), r.Virtual)
		if r.Fault != "" {
			fmt.Fprintln(out, "         "+r.Fault)
		}
		if r.Updated {
			continue // the difference is in the file
		}
		for _, d := range r.Differences {
			fmt.Fprintln(out, "         "+strings.ReplaceAll(d, "\n", "\n         "))
		}
	}
	return nil
}

// verdict is the first word of a result.
func verdict(r *workflowtest.Result) string {
	switch {
	case r.Passed:
		return "ok"
	case r.Updated:
		return "updated"
	}
	return "FAIL"
}

// testError says how many cases failed, and what to do.
func testError(results []*workflowtest.Result, update bool) error {
	failed, faults := 0, 0
	for _, r := range results {
		switch {
		case r.Fault != "":
			faults++
		case !r.Passed && !r.Updated:
			failed++
		}
	}
	of := text.Count(len(results), "case")
	switch {
	case faults > 0:
		return usage("%d of %s could not be run to the end; fix the file where it is said above", faults, of)
	case failed > 0 && update:
		return exit(exitOther, "%d of %s can't be fixed by --update; see above", failed, of)
	case failed > 0:
		return exit(exitOther, "%d of %s failed; fix the definition, or accept what happened with --update", failed, of)
	}
	return nil
}
