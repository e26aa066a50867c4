
=head1 NAME

DeadlockStorm - clients of several servers that acquire locks in random orders

=head1 SYNOPSIS

	my $storm = DeadlockStorm->new(\@nodes, clients => 4, deadlock_timeout => 0.2);
	my $random = $storm->run(seconds => 10, seed => 1);
	my $ordered = $storm->run(seconds => 10, seed => 1, ordered => 1);
	print "$random->{committed} transactions\n";
	my $history = DeadlockHistory->new(@{ $random->{lines} });

C<disturb> is called while the clients are at work. It ends at the moment that it is given, and
returns lines for the history.

Each client is a process with a session of its own.  A transaction acquires two or three locks
of a few: mutexes, read-write locks, semaphores, and rows of its own server, in a random order
or, "ordered", always in the same one.  Then it works for a moment, and commits.  Each node has
a table C<storm> with the rows 0 to 5, which C<new> makes.

=cut

package DeadlockStorm;

use strict;
use warnings;

use POSIX ();

use PgWire;

# For each lock: how it is acquired, and its name in the history.
my @locks = (
	(map { [ "/storm/m$_", "zk_xact_lock_acquire('/storm/m$_')", 'lock' ] } 0 .. 19),
	(map { [ "/storm/r$_", "zk_xact_write_lock_acquire('/storm/r$_')", 'write' ], [ "/storm/r$_", "zk_xact_read_lock_acquire('/storm/r$_')", 'read' ],
		[ "/storm/r$_", "zk_xact_write_lock_acquire('/storm/r$_', '0') OR zk_xact_write_lock_acquire('/storm/r$_')", 'write' ] } 0 .. 3),
	[ '/storm/s', q{zk_xact_semaphore_acquire('/storm/s', 3)}, 'lease 1 3' ],
	[ '/storm/s', q{zk_xact_semaphore_acquire('/storm/s', 3, NULL, 2)}, 'lease 2 3' ],
	(map { [ "row$_", "id FROM storm WHERE id = $_ FOR UPDATE", 'row' ] } 0 .. 5));

sub new
{
	my ($class, $nodes, %opt) = @_;
	$_->safe_psql('postgres', 'CREATE TABLE storm AS SELECT id FROM generate_series(0, 5) AS id') foreach @$nodes;
	return bless { nodes => $nodes, %opt }, $class;
}

sub run
{
	my ($self, %opt) = @_;
	my (@pipes, @lines);
	my $until = PgWire::now() + 1e6 * $opt{seconds};

	foreach my $node (@{ $self->{nodes} })
	{
		foreach my $i (1 .. $self->{clients})
		{
			pipe(my $read, my $write) or die "pipe: $!";
			my $pid = fork // die "fork: $!";
			if (!$pid)
			{
				close $read;
				srand(1000 * $opt{seed} + @pipes);
				my @out;
				eval { _client($node, \@out, $until, $opt{ordered}); 1 } or push @out, "0 * - failed $@";

				# The client waits for this moment: a pipe holds little, and the clients are read
				# one after the other.
				print {$write} map { "$_\n" } @out;
				close $write;
				POSIX::_exit(0);
			}
			close $write;
			push @pipes, [ $read, $pid ];
		}
	}
	push @lines, $opt{disturb}->($until) if $opt{disturb};
	foreach (@pipes)
	{
		my ($read, $pid) = @$_;
		push @lines, <$read>;
		waitpid $pid, 0;
	}
	chomp @lines;
	my $committed = grep { / committed$/ } @lines;
	@lines = grep { !/ committed$/ } @lines;

	# A wait is published after the first deadlock_timeout.  The rest of the bound is for the
	# machine: how long it took is among the figures, and 042_deadlocks can check that.
	unshift @lines, sprintf '%d * - config bound=%d race=%d turn=%d', 0, 4000 * $self->{deadlock_timeout} + 10_000, 1000, 5000;
	return { lines => \@lines, committed => $committed, deadlocks => scalar grep { / deadlock/ } @lines };
}

sub _client
{
	my ($node, $out, $until, $ordered) = @_;
	my $pg = PgWire->new($node->host, $node->port, 'storm');
	my $me = $node->name . ' ' . $pg->pid;

	while (PgWire::now() < $until)
	{
		my @wanted = _choose(2 + int(rand 2), $ordered);
		my $failed;
		_ask($pg, 'BEGIN');
		foreach my $lock (@wanted)
		{
			my ($path, $sql, $mode) = @$lock;
			push @$out, PgWire::now() . " $me want $path $mode";
			my $result = $pg->query("SELECT $sql");
			my $outcome = $result->{error} eq '' ? 'granted' : _is_across($result) ? 'deadlock' . _held_by($result) : 'refused';
			push @$out, PgWire::now() . " $me $outcome";
			$failed = $result->{error} or next;
			die "$failed $result->{message}\n" if $failed ne '40P01';
			last;
		}
		_ask($pg, q{SELECT pg_sleep(0.005)}) unless $failed;
		push @$out, PgWire::now() . " $me end";
		_ask($pg, $failed ? 'ROLLBACK' : 'COMMIT');
		push @$out, "$me committed" unless $failed;
	}
	return;
}

# The locks differ, because a path may be wanted in one mode only.
sub _choose
{
	my ($n, $ordered) = @_;
	my %chosen;
	while (keys %chosen < $n)
	{
		my $i = int rand @locks;
		$chosen{ $locks[$i][0] } //= $i;
	}
	my @order = values %chosen;
	@order = $ordered ? sort { $a <=> $b } @order : sort { $a->[1] <=> $b->[1] } map { [ $_, rand ] } @order;
	return map { $locks[ ref $_ ? $_->[0] : $_ ] } @order;
}

# PostgreSQL's own deadlock check may cancel a client that only stands in a queue of the circle and
# holds nothing.  The checker judges deadlocks between servers.
sub _is_across
{
	my ($result) = @_;
	return $result->{error} eq '40P01' && $result->{detail} =~ / on server "/;
}

sub _held_by
{
	my ($result) = @_;
	my @holders = ($result->{detail} // '') =~ /blocked by process (\d+) on server "(\w+)"/g;
	my @named;
	while (my ($pid, $server) = splice @holders, 0, 2) { push @named, "$server:$pid"; }
	return @named ? ' held_by=' . join ',', @named : '';
}

sub _ask
{
	my ($pg, $sql) = @_;
	my $result = $pg->query($sql);
	die "$sql: $result->{error} $result->{message}\n" if $result->{error};
	return;
}

1;
