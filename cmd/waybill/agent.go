package main

import (
	"context"

	"github.com/spf13/cobra"
)

func newAgent() *cobra.Command {
	cmd := &cobra.Command{Use: "agent", Short: "Run a built-in agent against a Kafka cluster"}
	_ = context.Background
	return cmd
}
