
# Split brain: the primary is cut off from everything but one client, which goes on writing there, and
# its standby is promoted.  While processes and ZooKeepers stand still at random, no commit of the old
# primary is acknowledged once the new one leads; without zklock.commit_requires, the same run shows
# the accident.
#
# "make split-brain" sets SPLIT_BRAIN_CUTS, and so the number of cuts, and SEED.

use strict;
use warnings;

use Time::HiRes qw(time usleep);

use FaultNet;
use PgWire;
use ZklockTest;

my $cuts = $ENV{SPLIT_BRAIN_CUTS} // 4;
my $seed = $ENV{SEED} // 1;
srand $seed;
note "SEED=$seed";
my $timeout = 2;
my $leader = '/leaders/primary';
my $leads = "SELECT zk_is_leader('$leader')";
my $zk = ZooKeeper->new(servers => 3);
my $directory = PostgreSQL::Test::Utils::tempdir_short();

# --- two servers, and a network that can be cut ---

my $to_zk = FaultNet->new;
my %hosts;
foreach my $name ('north', 'south')
{
	$hosts{$name} = join ',', map { $to_zk->link($name, "zk$_", $zk->address($_)) } 1 .. 3;
}
$to_zk->run;

my $north = ZklockNode->started('north', undef, 'zklock.hosts' => $hosts{north},
	'zklock.session_timeout' => "${timeout}s", 'zklock.leader_of' => $leader,
	'listen_addresses' => '127.0.0.1', 'track_commit_timestamp' => 'on', 'log_statement' => 'none',
	# So that most pauses are between the guard and the end of the commit.
	'fsync' => 'on', 'commit_delay' => '10000', 'commit_siblings' => '0',
	'wal_log_hints' => 'on', 'wal_keep_size' => '256MB', 'wal_receiver_status_interval' => '1s',
	init => [ allows_streaming => 1 ]);
my $south = ZklockNode->new('south');
my %node = (north => $north, south => $south);
my $replication = FaultNet->new;
my %upstream = $replication->link_nodes($north, $south);
$replication->run;

$north->safe_psql('postgres', 'CREATE TABLE t (cut int, n int)');
$north->backup('for_south');
$south->init_from_backup($north, 'for_south');
follow('south');
$south->start;
$north->wait_for_catchup($south, 'replay');
$north->wait_until($leads);

sub follow
{
	my ($name) = @_;
	return $node{$name}->follow($upstream{$name}, 'zklock.node_name' => $name, 'zklock.hosts' => $hosts{$name});
}

sub set_links
{
	my ($name, $mode) = @_;
	foreach my $i (1 .. 3)
	{
		$to_zk->set($name, "zk$i", $mode);
		$to_zk->set("zk$i", $name, $mode);
	}
	$replication->set(@$_, $mode) foreach [ 'north', 'south' ], [ 'south', 'north' ];
	return;
}

# --- two clients, each a process: one writes on the old primary, one asks the standby whether it leads ---

my @clients;

sub start_client
{
	my ($node, $file, $loop) = @_;
	my $pg = PgWire->new($node->host, $node->port, 'client', patience => 120);
	my $pid = fork // die "could not fork: $!";
	if (!$pid)
	{
		open my $out, '>', $file or POSIX::_exit(1);
		$out->autoflush;
		eval { $loop->($pg, $out) };
		POSIX::_exit(0);
	}
	push @clients, $pid;
	return $pg->pid;
}

sub stop_clients
{
	kill 'KILL', @clients;
	waitpid $_, 0 foreach @clients;
	return @clients = ();
}

END
{
	my $status = $?;
	kill 'KILL', @clients;
	waitpid $_, 0 foreach @clients;
	$? = $status;
}

# Numbers, and when the answer was there.
sub write_on
{
	my ($node, $cut, $file) = @_;
	return start_client($node, $file, sub {
		my ($pg, $out) = @_;
		foreach my $n (1 .. 1e9)
		{
			$pg = PgWire->new($node->host, $node->port, 'client', patience => 120) unless $pg->is_alive;
			my $result = $pg->query("INSERT INTO t VALUES ($cut, $n)");
			print $out "$n $result->{end} " . ($result->{error} || 'ok') . "\n";
			usleep(3_000);
		}
	});
}

# When the answer was there that it leads.
sub ask
{
	my ($node, $file) = @_;
	return start_client($node, $file, sub {
		my ($pg, $out) = @_;
		while ($pg->is_alive)
		{
			my $result = $pg->query($leads);
			if (@{ $result->{rows} } && $result->{rows}[0][0] eq 't')
			{
				print $out "$result->{end}\n";
				return;
			}
			usleep(1_000);
		}
	});
}

# --- one cut ---

my @pauses = ('nothing', 'backend', 'worker', 'claims process', 'ZooKeeper', 'backend', 'worker and backend');
sub between { my ($from, $to) = @_; return $from + rand($to - $from); }
sub at { my ($moment) = @_; my $rest = $moment - time; usleep(1e6 * $rest) if $rest > 0; return; }

# Returns a pair of subroutines: let it stand still, and go on.
sub pause_of
{
	my ($what, $old, $backend) = @_;
	my @pids;
	push @pids, $backend if $what =~ /backend/;
	push @pids, $old->worker_pid if $what =~ /worker/;
	push @pids, $old->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'zklock claims'}) if $what eq 'claims process';
	my $i = 1 + int rand 3;
	return $what eq 'ZooKeeper' ? (sub { $zk->pause($i) }, sub { $zk->resume($i) }) : (sub { kill 'STOP', @pids }, sub { kill 'CONT', @pids });
}

# Of a backend that stands still: has its transaction an ID?  If not, it either has not written, or its
# commit is over, and the look after it, too.
sub has_xid
{
	my ($old, $backend) = @_;
	return $old->safe_psql('postgres', "SELECT backend_xid IS NOT NULL FROM pg_stat_activity WHERE pid = $backend") eq 't';
}

my %total = (acknowledged => 0, refused => 0, late => 0, unacknowledged => 0, breaches => 0, accidents => 0);
my @gaps;

sub cut
{
	my ($cut, $old_name, $new_name, $required) = @_;
	my ($old, $new) = @node{ $old_name, $new_name };
	my ($written, $led) = map { "$directory/$cut.$_" } 'written', 'led';
	$old->set('zklock.commit_requires', $required ? $leader : '');
	$old->wait_until($leads);

	my $backend = write_on($old, $cut, $written);
	ask($new, $led);
	usleep(200_000);
	my $what = $required ? $pauses[$cut % @pauses] : 'nothing';
	my ($stop, $continue) = pause_of($what, $old, $backend);
	my ($length, $promote_after, $pause_after, $pause) = (between(0.3, 3 * $timeout), between(0, 1), between(0, $timeout), between(0.1, 2 * $timeout));
	$length = 3 * $timeout unless $required;

	# The promotion takes a moment, so it is a process of its own.
	my $begun = time;
	set_links($old_name, 'hold');
	my $promotes = fork // die "could not fork: $!";
	if (!$promotes)
	{
		at($begun + $promote_after);
		$new->promote;
		POSIX::_exit(0);
	}
	at($begun + $pause_after);
	$stop->();
	my $in_doubt = $what =~ /backend/ && has_xid($old, $backend);
	at($begun + $pause_after + $pause);
	my $continued = PgWire::now();
	$continue->();
	at($begun + $length);
	set_links($old_name, 'open');
	waitpid $promotes, 0;
	$new->_update_pid(1);
	usleep(500_000);

	# If the old one leads on, it has to be stopped.
	my $late = $old->safe_psql('postgres', 'SELECT late_commits FROM zk_stat');
	my %when = map { split /\|/ } split /\n/,
	  $old->safe_psql('postgres', "SELECT n, (1e6 * extract(epoch FROM pg_xact_commit_timestamp(xmin)))::bigint FROM t WHERE cut = $cut");
	my $offset = int(1e6 * time) - PgWire::now();
	$old->stop('fast');
	$zk->wait_until(sub { -s $led }, 'the new primary to lead');
	stop_clients();

	my ($granted) = split /\n/, slurp_file($led);
	my %answer = map { my ($n, $end, $error) = split / /; ($n => [ $end, $error ]) } split /\n/, slurp_file($written);
	my @acknowledged = grep { $answer{$_}[1] eq 'ok' } keys %answer;
	my @after = grep { $answer{$_}[0] > $granted } @acknowledged;

	# A backend that stood still after the look behind its commit may tell so later.  That answer is the
	# first one after the backend goes on, however late the machine is with it.
	my ($next) = sort { $answer{$a}[0] <=> $answer{$b}[0] } grep { $answer{$_}[0] > $continued } keys %answer;
	my @told = $in_doubt || $what !~ /backend/ ? () : grep { $_ == $next } @after;
	@after = grep { $_ != $next } @after if @told;
	my @late = grep { $when{$_} - $offset > $granted } keys %when;
	my ($last) = sort { $b <=> $a } map { $answer{$_}[0] } @acknowledged;
	push @gaps, ($granted - $last) / 1000 if $required;

	$total{acknowledged} += @acknowledged;
	$total{refused} += grep { $_->[1] eq '25006' } values %answer;
	$total{late} += $late;
	$total{unacknowledged} += @late if $required;
	$total{ $required ? 'breaches' : 'accidents' } += @after;
	my $summary = sprintf '%s cut off for %.1f s, %s stands still for %.1f s: %d commits, the last %.0f ms before %s leads',
	  $old_name, $length, $what, $pause, scalar(@acknowledged), ($granted - $last) / 1000, $new_name;
	if ($required)
	{
		is(scalar(@after), 0, "cut $cut: $summary");
		is(scalar(grep { $answer{$_} && $answer{$_}[1] eq 'ok' } @late), scalar(@told), "cut $cut: what was committed later was not acknowledged");
	}
	else
	{
		cmp_ok(scalar(@after), '>', 0, "cut $cut, not required: the accident: " . scalar(@after) . " commits of $old_name after $new_name led");
	}
	return come_back($old_name, $new_name);
}

# The old primary becomes a standby.
sub come_back
{
	my ($old_name, $new_name) = @_;
	my ($old, $new) = @node{ $old_name, $new_name };
	$new->wait_until($leads);
	$old->rewind($new);
	follow($old_name);
	$old->start;
	$new->wait_for_catchup($old, 'replay', $new->lsn('write'));
	return;
}

my @names = ('north', 'south');
foreach my $cut (1 .. $cuts)
{
	cut($cut, @names, 1);
	@names = reverse @names;
}
cut(1000, @names, 0);

@gaps = sort { $a <=> $b } @gaps;
note sprintf 'from the last acknowledged commit to the next leadership: %.0f ms at least, %.0f ms in the middle, %.0f ms at most', @gaps[0, @gaps / 2, -1];
note join ', ', map { "$_: $total{$_}" } sort keys %total;
is($total{breaches}, 0, "in $cuts cuts, no commit was acknowledged after another server led");
cmp_ok($total{acknowledged}, '>', 10 * $cuts, 'and many before');
$_->stop foreach values %node;
done_testing();
