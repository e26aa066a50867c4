
=head1 NAME

FaultRun - ZooKeeper and PostgreSQL servers, three of each or more, clients, faults, and a verdict

=head1 SYNOPSIS

	my $cluster = FaultRun->new;
	my @problems = $cluster->run(17, 30);

The clients are L<FaultClient>, the faults are in L<FaultSchedule>, L<FaultNet> connects the
servers, and L<FaultHistory> has the rules for all of it.

=cut

package FaultRun;

use strict;
use warnings;

use Carp;
use Cwd qw(abs_path);
use Fcntl qw(:flock);
use File::Basename qw(dirname);
use File::Path qw(make_path);
use IO::Socket::INET;
use POSIX ();
use Test::More ();
use Time::HiRes qw(usleep);

use PostgreSQL::Test::Utils;

use FaultClient;
use FaultHistory;
use FaultJobs;
use FaultNet;
use FaultSchedule;
use JobHistory;
use PgWire;
use Replicas;
use ZklockNode;
use ZooKeeper;

my $clients_per_node = $ENV{FAULT_CLIENTS} // 5;
my $jars = $ENV{ZOOKEEPER_JARS} // '/usr/share/java';

=head1 METHODS

=over

=item FaultRun->new($seed, $seconds, $directory)

Starts the servers, with the settings that follow from the seed.  Histories are kept in the
directory.

=item $run->run

Lets clients and faults do their worst, repairs everything, and returns the problems.

=item $run->void

ZooKeeper itself has lost what it had committed, or its servers differ, so that the run proves
nothing: a list of messages.

=item $run->excerpt

The records that the problems are about, as lines.

=item $run->figures

The counts, as a hash.

=back

=cut

sub new
{
	my ($class, $seed, $seconds, $directory) = @_;
	my $self = bless {
		seed => $seed, seconds => $seconds, directory => $directory,
		schedule => FaultSchedule->new($seed, $seconds),
		net => FaultNet->new,
	}, $class;
	make_path($directory);
	$self->{clock} = PostgreSQL::Test::Utils::tempdir('clock') . '/set_clock.so';
	system_or_bail('cc', '-shared', '-fPIC', '-O', '-o', $self->{clock},
		abs_path(dirname(__FILE__)) . '/../set_clock.c', '-ldl');
	# This ensemble removes empty directories, as ensembles do outside of tests.
	my $zk = $self->{zk} = ZooKeeper->new(servers => scalar @FaultSchedule::members, start => 0,
		observers => $seed % 10 ? 0 : $ENV{FAULT_OBSERVERS}, java_opts => '',
		tick_time => $self->{schedule}{settings}{tick});
	$self->{net}->link_members($zk);

	my %hosts;
	foreach my $name (@FaultSchedule::nodes)
	{
		my @ways = map { $self->{net}->link($name, $_, $zk->address($_)) } @FaultSchedule::members;
		@{ $self->{member_at} }{@ways} = @FaultSchedule::members;
		$hosts{$name} = join ',', @ways;
	}
	$self->{net}->run;
	$zk->start;
	$self->{node}{$_} = $self->_start_node($_, $hosts{$_}) foreach @FaultSchedule::nodes;
	$_->wait_until_connected foreach values %{ $self->{node} };
	return $self;
}

sub _start_node
{
	my ($self, $name, $hosts) = @_;
	my $settings = $self->{schedule}{settings};
	my %settings = (
		'zklock.hosts' => $hosts,
		'zklock.node_name' => $name,
		'zklock.session_timeout' => "$settings->{timeout}ms",
		'zklock.connection_timeout' => "$settings->{connection}ms",
		'zklock.tenure' => "$settings->{tenure}ms",
		'zklock.linger' => "$settings->{linger}{$name}ms",
		'zklock.commit_margin' => "$settings->{margin}ms",
		'zklock.synchronous_release' => $settings->{synchronous},
		'zklock.leader_of' => $FaultJobs::led,
		'restart_after_crash' => 'on',
		'max_connections' => 30 + $clients_per_node * (3 + @FaultSchedule::nodes),
		'deadlock_timeout' => '100ms',
		'log_statement' => 'none',
		'log_min_error_statement' => 'panic',
		'autovacuum' => 'off');

	# Copies of the first server, because initdb takes long.
	my $first = $self->{node}{ $FaultSchedule::nodes[0] };
	my $node = $first ? ZklockNode->new($name) : ZklockNode->initialized($name, undef, %settings);
	if ($first)
	{
		$node->init_from_backup($first, 'fresh');
		$node->configure(%settings);
	}
	else { $node->backup_fs_cold('fresh'); }
	append_to_file($node->data_dir . '/clock', $settings->{skew}{$name});
	$self->_start_server($node);
	$node->safe_psql('postgres', 'CREATE EXTENSION zklock');
	FaultClient::prepare($node);
	return $node;
}

# Its clock is wrong.
sub _start_server
{
	my ($self, $node, %opt) = @_;
	local $ENV{LD_PRELOAD} = $self->{clock};
	return $node->start(%opt);
}

sub run
{
	my ($self) = @_;
	my $settings = $self->{schedule}{settings};
	my $start = $self->{start} = PgWire::now();
	my $until = $start + 1e6 * ($ENV{FAULT_UNTIL} // $self->{seconds});
	$self->{log} = FaultClient->in_person('driver', $self->{node}{a}, "$self->{directory}/driver");
	$self->{log}->_record('config', map { ($_ => $settings->{$_}) } grep { !ref $settings->{$_} } keys %$settings);

	my @clients;
	my $n = 0;
	foreach my $name (@FaultSchedule::nodes)
	{
		push @clients, map {
			FaultClient->start("$name$_", $self->{node}{$name}, $self->{node}{a},
				"$self->{directory}/$name$_", seed => $self->{seed} * 100 + $n++, until => $until,
				connection => $settings->{connection}, jobs => $settings->{jobs})
		} 1 .. $clients_per_node;
	}

	my $pulse = $self->_pulse;
	my @faults = map { $self->_when($_) } @{ $self->{schedule}{faults} };
	waitpid $_, 0 foreach @faults;
	$_->wait foreach @clients;
	$self->_heal;
	$_->set('zklock.linger', 0) foreach values %{ $self->{node} };
	$self->_final_leader;
	$self->_final_runs;
	$self->_compare_replicas;
	$self->_look_for_leftovers;
	$self->_final_acquires;
	kill 'KILL', $pulse;
	waitpid $pulse, 0;
	$self->_look_for_leftovers;
	$self->_compare_replicas;
	$self->_look_for_crashes;
	$self->_audit;

	my @records = $self->_records;
	my $history = FaultHistory->new(@records);
	my @problems = $history->problems;
	$self->{excerpt} = [ $history->excerpt(@problems) ];
	$self->{figures} = { $history->figures, faults => scalar @faults };
	$self->{void} = [ map { $_->{what} } grep { $_->{op} eq 'void' } @records ];
	return @problems;
}

sub _records
{
	my ($self) = @_;
	return map { FaultHistory::parse($_) } map { split /\n/, slurp_file($_) } glob "$self->{directory}/*";
}

sub void { my ($self) = @_; return @{ $self->{void} }; }
sub figures { my ($self) = @_; return %{ $self->{figures} }; }
sub excerpt { my ($self) = @_; return @{ $self->{excerpt} }; }

# A process that records when the whole machine stood still.
sub _pulse
{
	my ($self) = @_;
	my $test = $$;
	my $pid = fork // die "could not fork: $!";
	return $pid if $pid;
	my $log = FaultClient->in_person('pulse', $self->{node}{a}, "$self->{directory}/pulse");
	my $last = PgWire::now();
	while (getppid() == $test)
	{
		usleep(50_000);
		my $now = PgWire::now();
		if ($now > $last + 300_000)
		{
			$log->_record('stop', node => $_, t => $last, end => $now) foreach @FaultSchedule::nodes;
		}
		$last = $now;
	}
	POSIX::_exit(0);
}

# --- faults ---

# The fault begins at its time, in a process of its own; returns the process's id.
sub _when
{
	my ($self, $fault) = @_;
	my $at = $self->{start} + 1e6 * $fault->{at};
	my $wait = $at - PgWire::now();
	usleep($wait) if $wait > 0;
	my $pid = fork // croak "could not fork: $!";
	return $pid if $pid;

	eval { $self->_inflict($fault); 1 }
	  or $self->{log}->_record('crash', what => "$fault->{kind} $fault->{what}: $@");
	POSIX::_exit(0);
}

sub _say
{
	my ($self, $fault, @details) = @_;
	my $text = sprintf '%6.2f %-17s %-18s %.2f s %s', (PgWire::now() - $self->{start}) / 1e6,
	  $fault->{kind}, $fault->{what}, $fault->{for}, "@details";
	Test::More::note($text);
	return;
}

sub _inflict
{
	my ($self, $fault) = @_;
	my ($group, $name) = split /\./, $fault->{kind};

	# The servers that the previous fault stopped or killed have to be there again.
	my $alone;
	if ($group =~ /^(zk|worker|backend|server|postmaster)$/)
	{
		my $name = $group eq 'zk' ? 'zk' : $fault->{what};
		open $alone, '>>', "$self->{zk}{directory}/$name.lock" or die "could not open: $!\n";
		flock $alone, LOCK_EX or die "could not lock: $!\n";
	}
	my $t = PgWire::now();
	my $method = "_fault_$group";
	my $what = $self->$method($name, $fault);
	$self->{log}->_record('fault', t => $t, end => PgWire::now(), what => "$fault->{kind} $fault->{what} $what");
	return;
}

sub _sleep { my ($fault) = @_; usleep(1e6 * $fault->{for}); return; }

# The state of a member at the moment, without a long wait for one that stands still.
sub _mode
{
	my ($self, $i) = @_;
	my $socket = IO::Socket::INET->new(PeerAddr => $self->{zk}->address($i), Timeout => 0.2)
	  or return '';
	syswrite $socket, 'srvr';
	my $text = '';
	vec(my $ready = '', fileno $socket, 1) = 1;
	while (select(my $is = $ready, undef, undef, 0.2) > 0)
	{
		sysread $socket, $text, 4096, length $text or last;
	}
	return $text =~ /^Mode: (\w+)/m ? $1 : '';
}

# The names of the members that are meant; there may be none.
sub _members
{
	my ($self, $what, $detail) = @_;
	return $self->_home($1) if $what =~ /^home:(.+)/;
	return $what unless $what =~ /^(leader|follower|two)$/;
	my @all = @FaultSchedule::members;
	push @all, shift @all foreach 1 .. $detail % @all;
	return @all[ 0, 1 ] if $what eq 'two';
	my ($found) = grep { $self->_mode($_) eq $what } @all;
	return $found // $all[0];
}

# The member to which a server is connected.
sub _home
{
	my ($self, $name) = @_;
	my $address = $self->_ask($name, 'SELECT server FROM zk_sessions') // '';
	return $self->{member_at}{$address} // $FaultSchedule::members[0];
}

sub _fault_zk
{
	my ($self, $name, $fault) = @_;
	my @who = $self->_members($fault->{what}, $fault->{detail});
	my $zk = $self->{zk};
	$self->_say($fault, "zookeeper @who");
	if ($name eq 'pause')
	{
		# A member that was killed may be about to start only now.
		foreach my $i (@who) { eval { $zk->pause($i) }; }
		_sleep($fault);
		foreach my $i (@who) { eval { $zk->resume($i) }; }
	}
	else
	{
		$zk->kill9(@who);
		_sleep($fault);
		$zk->start(@who);
	}
	return "@who";
}

# A short query to a server that may be out of order.
sub _ask
{
	my ($self, $name, $sql) = @_;
	my $node = $self->{node}{$name};
	my $pg = eval { PgWire->new($node->host, $node->port, 'driver', patience => 2) } or return;
	my $result = $pg->query($sql);
	$pg->close;
	return $result->{rows}[0] ? $result->{rows}[0][0] : undef;
}

sub _stop_for_a_while
{
	my ($self, $fault, $t, $node, $pid, @pids) = @_;
	kill 'STOP', @pids;
	_sleep($fault);
	kill 'CONT', @pids;
	$self->{log}->_record('stop', t => $t, end => PgWire::now(), node => $node, pid => $pid);
	return;
}

sub _fault_worker
{
	my ($self, $name, $fault) = @_;
	my $node = $fault->{what};
	my $pid = $self->_ask($node, 'SELECT worker_pid FROM zk_sessions') // return 'no process';
	$self->_say($fault, "pid $pid");
	return $self->_hit($name, $fault, $node, $pid, 'worker');
}

sub _fault_backend
{
	my ($self, $name, $fault) = @_;
	my $node = $fault->{what};
	my $who = $node . (1 + $fault->{detail} % $clients_per_node);
	my $pid = $self->_ask($node, "SELECT pid FROM pg_stat_activity WHERE application_name = '$who'") // return 'no process';
	$self->_say($fault, "pid $pid of $who");
	return $self->_hit($name, $fault, $node, $pid, $pid);
}

sub _hit
{
	my ($self, $name, $fault, $node, $pid, $as) = @_;
	if ($name eq 'pause') { $self->_stop_for_a_while($fault, PgWire::now(), $node, $as, $pid); }
	else { kill $name eq 'kill' ? 'KILL' : 'TERM', $pid; }
	return $pid;
}

sub _postmaster
{
	my ($node) = @_;
	my ($pid) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');
	return $pid;
}

# The postmaster is killed first, so that it starts no new processes.
sub _fault_server
{
	my ($self, $name, $fault) = @_;
	my $node = $self->{node}{ $fault->{what} };
	$self->_say($fault);
	if ($name eq 'pause')
	{
		my $postmaster = _postmaster($node);
		my $t = PgWire::now();
		kill 'STOP', $postmaster;
		my %children = $node->children;
		$self->_stop_for_a_while($fault, $t, $fault->{what}, undef, $postmaster, keys %children);
		return '';
	}
	$node->{_pid} = _postmaster($node);
	$node->kill9_all;
	_sleep($fault);
	$self->_start_again($node);
	return '';
}

sub _fault_postmaster
{
	my ($self, $name, $fault) = @_;
	my $node = $self->{node}{ $fault->{what} };
	$self->_say($fault);
	my %children = $node->children;
	$node->{_pid} = my $postmaster = _postmaster($node);
	$node->kill9;
	_sleep($fault);
	kill 'KILL', keys %children;
	usleep(10_000) while grep { ZklockNode::_is_dead($_) ? 0 : 1 } keys %children;
	usleep(10_000) while -e "/proc/$postmaster";
	$self->_start_again($node);
	return '';
}

sub _start_again
{
	my ($self, $node) = @_;
	delete $node->{_pid};
	$self->_start_server($node, fail_ok => 1) or die "could not start again\n";
	return;
}

# Every pair of the two groups, as [ from, to ].
sub _pairs
{
	my ($self, $fault) = @_;
	my ($from, $to) = split / /, $fault->{what};
	my %is_node = map { $_ => 1 } @FaultSchedule::nodes;
	my @others = @FaultSchedule::members;
	push @others, @FaultSchedule::nodes if $fault->{detail} % 2;
	my @from = $from eq '*' ? () : $is_node{$from} ? $from : $self->_members($from, $fault->{detail});
	my @to = $to eq '*' ? () : $is_node{$to} ? $to : $self->_members($to, $fault->{detail});
	@to = $is_node{$from} ? @FaultSchedule::members : @others if $to eq '*';
	@from = $is_node{$to} ? @FaultSchedule::members : @others if $from eq '*';
	return grep { $_->[0] ne $_->[1] } map { my $f = $_; map { [ $f, $_ ] } @to } @from;
}

sub _fault_net
{
	my ($self, $name, $fault) = @_;
	my $net = $self->{net};
	my @pairs = $self->_pairs($fault);
	my $text = join ' ', map { "$_->[0]-$_->[1]" } @pairs;
	$self->_say($fault, $text);
	if ($name eq 'reset')
	{
		$net->reset(@$_) foreach @pairs;
		return $text;
	}
	my @ways = $name eq 'oneway' ? @pairs : map { ($_, [ reverse @$_ ]) } @pairs;
	my @mode = $name eq 'cut' ? 'cut' : $name eq 'delay' ? ('delay', 5 + $fault->{detail} / 4) : 'hold';
	$net->set(@$_, @mode) foreach @ways;
	_sleep($fault);

	# Packets that were held up may arrive late or never.
	$net->reset(@$_) foreach $fault->{detail} % 3 ? () : @pairs;
	$net->set(@$_, 'open') foreach @ways;
	return $text;
}

sub _fault_session
{
	my ($self, $name, $fault) = @_;
	my $session = $self->_ask($fault->{what}, 'SELECT session_id FROM zk_sessions') // return 'no session';
	$self->_say($fault, $session);
	my $t = PgWire::now();
	# The worker may have taken the session back before it was closed.
	my $ended = $self->_own_zk->kill_session($session) && eval { !$self->{zk}->has_session($session) };
	$self->{log}->_record('foul', t => $t, end => PgWire::now(), node => $fault->{what}, ended => $ended ? 1 : 0);
	return $session;
}

# A ZooKeeper client of its own for this process.
sub _own_zk
{
	my ($self) = @_;
	my $zk = bless { %{ $self->{zk} } }, 'ZooKeeper';
	delete @{$zk}{qw(client_pid answers requests)};
	return $zk;
}

sub _fault_lock
{
	my ($self, $name, $fault) = @_;
	my @paths = sort grep { $_ ne '/fifo' } keys %FaultClient::paths;
	my $path = $paths[ $fault->{detail} % @paths ];
	$self->_say($fault, $path);
	my $t = PgWire::now();
	my $count = $self->_ask($fault->{what}, "SELECT zk_lock_force_release('$path')") // 'unknown';
	$self->{log}->_record('foul', t => $t, end => PgWire::now(), node => undef, path => $path);
	return "$path $count";
}

# --- the end ---

sub _heal
{
	my ($self) = @_;
	my $net = $self->{net};
	foreach my $one (@FaultSchedule::members)
	{
		foreach my $other (@FaultSchedule::nodes, grep { $_ ne $one } @FaultSchedule::members)
		{
			$net->set($one, $other, 'open');
			$net->set($other, $one, 'open');
		}
	}
	# An election may take longer than a server needs to connect afterwards.
	$self->{zk}->start;
	foreach my $name (@FaultSchedule::nodes)
	{
		my $node = $self->{node}{$name};
		$node->{_pid} = _postmaster($node);
		$self->_wait_until_connected($name);
	}
	return;
}

# An ensemble that has lost transactions refuses clients that have seen them.
sub _wait_until_connected
{
	my ($self, $name) = @_;
	my $is_away = $self->_until_nothing(sub {
		my $is_there = $self->_ask($name, "SELECT state IN ('connected', 'idle') AND safe FROM zk_status") // 'f';
		$is_there eq 't' ? '' : 'away' });
	return unless $is_away;

	my $refused = grep { slurp_file($_) =~ /Refusing session/ } glob "$self->{zk}{directory}/?/log";
	$self->{log}->_record($refused ? 'void' : 'left', node => $name, what => "$name is not connected");
	kill 'TERM', $self->_ask($name, 'SELECT worker_pid FROM zk_sessions') || ();
	return $self->{node}{$name}->wait_until_connected;
}

# Servers that have applied the same writes have the same tree.  A server that still catches up, or
# a znode that is just being deleted, needs a moment.
sub _compare_replicas
{
	my ($self) = @_;
	my $zk = $self->{zk};
	$zk->start;
	my $differences = $self->_until_nothing(sub {
		join "\n", Replicas::differences(map { $_ => $zk->snapshot('/', $_) } @FaultSchedule::members) });
	$self->{log}->_record('void', what => "ZooKeeper's servers differ: $_") foreach split /\n/, $differences;
	return;
}

# No lock is in the way of any client.
sub _final_acquires
{
	my ($self) = @_;
	foreach my $name (@FaultSchedule::nodes)
	{
		my $client = FaultClient->in_person("final-$name", $self->{node}{$name}, "$self->{directory}/final");
		$client->_connect or die "could not connect to $name";
		foreach my $path (sort keys %FaultClient::paths)
		{
			my $claim = $client->acquire($path, scope => 'session', mode => 'write', must => 1,
				wait => [ 'timeout', 10_000 ], quantity => $FaultClient::paths{$path}{n}) or next;
			$client->_ask('held', $claim);
			$client->_release($claim);
		}
		$client->{pg}->close;
	}
	return;
}

# One server leads, and the others stand behind it; then none stands any more.
sub _final_leader
{
	my ($self) = @_;
	my $nodes = @FaultSchedule::nodes;
	my $line = $self->_until_nothing(sub {
		my @leads = map { $self->_ask($_, "SELECT zk_is_leader('$FaultJobs::led')") // '?' } @FaultSchedule::nodes;
		my $standing = $self->_ask('a', 'SELECT count(*) FROM zk_leaders') // '?';
		join('', sort @leads) eq 'f' x ($nodes - 1) . 't' && $standing eq $nodes ? '' : "who leads: @leads; of $standing" });
	$self->{log}->_record('left', what => $line) if $line ne '';
	$_->set('zklock.leader_of', '') foreach values %{ $self->{node} };
	return;
}

# The last tick of each job is run, or has been run.
sub _final_runs
{
	my ($self) = @_;
	my $tick_of = JobHistory::last_ticks($self->_records);
	foreach my $name (@FaultSchedule::nodes)
	{
		my $client = FaultClient->in_person("last-$name", $self->{node}{$name}, "$self->{directory}/last");
		$client->_connect or die "could not connect to $name";
		FaultJobs::finish($client, $tick_of);
		$client->{pg}->close;
	}
	return;
}

# All claims are over, and no ticket lingers.
sub _look_for_leftovers
{
	my ($self) = @_;
	foreach my $name (@FaultSchedule::nodes)
	{
		my $left = $self->_until_nothing(sub {
			$self->{node}{$name}->safe_psql('postgres',
				"SELECT 'entry ' || path || ' ' || coalesce(ticket, '?') FROM zk_locks UNION ALL"
				  . " SELECT 'lock ' || pid FROM pg_locks WHERE locktype = 'advisory' AND database = 0")
		});
		$self->{log}->_record('left', node => $name, what => $left) if $left ne '';
	}
	delete $self->{deletes};
	my $znodes = $self->_until_nothing(sub { join ' ', grep { /[-_]\d{10}$/ } @{ $self->{zk}->tree('/zklock') } });
	foreach my $znode (split / /, $znodes)
	{
		my $deleted = $self->_was_deleted($znode);
		$self->{log}->_record($deleted ? 'void' : 'left', what => "$znode is left $deleted");

		# If the servers differ, the leader may not have the znode.
		eval { $self->{zk}->delete($znode); 1 } or $@ =~ /NoNodeError/ or die $@;
	}
	return;
}

sub _until_nothing
{
	my ($self, $look) = @_;
	my $found;
	foreach (1 .. 100)
	{
		$found = $look->();
		last if $found eq '';
		usleep(100_000);
	}
	return $found;
}

# ZooKeeper 3.8.0 can forget what it has committed, when a follower loses its leader
# (ZOOKEEPER-4541, -4712, -4785).  Its log tells: there, the znode was deleted.
sub _was_deleted
{
	my ($self, $znode) = @_;
	$self->{deletes} //= join '', map {
		`java -Xmx64m -cp '$jars/*' org.apache.zookeeper.server.persistence.TxnLogToolkit -d $_ 2>/dev/null | grep -a delete`
	} glob "$self->{zk}{directory}/?/data/version-2/log.*";
	my ($name) = $znode =~ m{([^/]+)$};
	return $self->{deletes} =~ /(zxid \w+) .*\Q$name\E/ ? "but was deleted by $1" : '';
}

# A process that ended by a signal other than our own.
sub _look_for_crashes
{
	my ($self) = @_;
	foreach my $node (values %{ $self->{node} })
	{
		my $log = slurp_file($node->logfile);
		$self->{log}->_record('crash', node => $node->name, what => $1)
		  while $log =~ /^(.*(?:terminated by signal (?!9\b)|PANIC:|TRAP:).*)$/mg;
	}
	return;
}

sub _audit
{
	my ($self) = @_;
	foreach my $name (@FaultSchedule::nodes)
	{
		my $node = $self->{node}{$name};
		foreach my $store (qw(fence guard))
		{
			foreach (split /\n/, $node->safe_psql('postgres', "SELECT path, n FROM $store"))
			{
				my ($path, $n) = split /\|/;
				$self->{log}->_record('counter', store => $store, node => $name, path => $path, value => $n);
			}
			foreach (split /\n/, $node->safe_psql('postgres', "SELECT path, value, token, wid FROM ${store}_audit"))
			{
				my ($path, $value, $token, $wid) = split /\|/;
				$self->{log}->_record('audit', store => $store, node => $name, path => $path,
					value => $value, token => $token, wid => $wid);
			}
		}
		foreach (split /\n/, $node->safe_psql('postgres', 'SELECT path, tick, wid FROM ran'))
		{
			my ($path, $tick, $wid) = split /\|/;
			$self->{log}->_record('ran_row', node => $name, path => $path, tick => $tick, wid => $wid);
		}
		foreach (split /\n/, $node->safe_psql('postgres', 'SELECT token, wid FROM led'))
		{
			my ($token, $wid) = split /\|/;
			$self->{log}->_record('led_row', node => $name, token => $token, wid => $wid);
		}
	}
	return;
}

1;
