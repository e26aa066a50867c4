
=head1 NAME

Fleet - many ZooKeeper sessions that play workers, and what they cost ZooKeeper

=head1 SYNOPSIS

	my $fleet = Fleet->new($zk, sessions => 1000, timeout => 20);

	$fleet->command('open');
	$fleet->wait_for(usable => 1000);
	my $row = $fleet->phase('idle', sub { sleep 10 });
	is($row->{writes}, 0, 'idle sessions write nothing');
	note $fleet->table;

The sessions are in one process, whose commands F<test/fleet/sessions.c> explains.  The process
ends with the test.

=cut

package Fleet;

use strict;
use warnings;

use Carp;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use IPC::Open2;
use Test::More;
use Time::HiRes qw(time);

use PostgreSQL::Test::Utils;

use ZklockNode;

my $top = abs_path(dirname(__FILE__) . '/../..');
my @fleets;

# The counters of ZooKeeper's servers, and their names here.
my %counter = (
	zk_proposal_count => 'writes',
	zk_cnt_readlatency => 'reads',
	zk_bytes_received_count => 'received',
	zk_response_bytes => 'sent');

=head1 METHODS

=over

=item Fleet->new($zk, sessions => $n, timeout => $seconds)

Builds the program and starts it.  No session is open yet.

=cut

sub new
{
	my ($class, $zk, %params) = @_;
	my $self = bless { zk => $zk, sessions => $params{sessions}, rows => [], last => {}, total => {} }, $class;

	system_or_bail('make', '-s', '-C', $top, 'test/out/sessions');
	$self->{pid} = open2($self->{answers}, $self->{commands},
		"$top/test/out/sessions", $zk->hosts, $params{sessions}, 1000 * $params{timeout});
	push @fleets, $self;
	return $self;
}

=item $fleet->command($command)

The answer, as a reference to a hash where it consists of C<name=value>.

=cut

sub command
{
	my ($self, $command) = @_;
	local $SIG{PIPE} = 'IGNORE';
	print { $self->{commands} } "$command\n";
	my $answer = readline $self->{answers};
	croak "$command: " . ($answer // 'the fleet has died') unless defined $answer && $answer !~ /^error/;
	return { $answer =~ /(\w+)=(\S+)/g };
}

=item $fleet->wait_for($name => $wanted)

Until the status has this value.

=cut

sub wait_for
{
	my ($self, $name, $wanted) = @_;
	my $status;
	$self->{zk}->wait_until(sub { $status = $self->command('status'); $status->{$name} == $wanted },
		sub { "$wanted sessions to be $name: " . join ' ', map { "$_=$status->{$_}" } sort keys %$status });
	return;
}

=item $fleet->phase($name, sub { ... })

Performs the phase, and returns what it has cost, as a reference to a hash:

C<seconds>; of all ZooKeeper servers together C<writes> (of the quorum), C<reads>, bytes
C<received> from clients and C<sent> to them, C<cpu> seconds; C<memory> of the server that has most,
in megabytes; and what the program reports, since the last phase.

=item $fleet->look

In a phase that restarts servers: to be called before a server ends.

=cut

sub phase
{
	my ($self, $name, $perform) = @_;
	$self->command('report');
	$self->look;
	$self->{total} = {};
	my $begin = time;
	$perform->();
	my $seconds = time - $begin;
	$self->look;
	my %row = (name => $name, seconds => $seconds, %{ $self->{total} }, %{ $self->command('report') });
	push @{ $self->{rows} }, \%row;
	note join ' ', map { "$_=$row{$_}" } 'name', sort grep { $_ ne 'name' } keys %row;
	return \%row;
}

# Servers that have been started since the last look count from 0.
sub look
{
	my ($self) = @_;
	my $total = $self->{total};
	$total->{$_} //= 0 foreach 'cpu', 'memory', values %counter;
	foreach my $i (1 .. $self->{zk}{servers})
	{
		my $pid = $self->{zk}->pid($i) // next;
		my %now = $self->_sample($i, $pid) or next;
		$total->{memory} = $now{memory} if $now{memory} > $total->{memory};
		delete $now{memory};
		my $last = $self->{last}{$i} // { pid => 0 };
		$total->{$_} += $now{$_} - ($last->{pid} == $pid ? $last->{$_} : 0) foreach keys %now;
		$self->{last}{$i} = { pid => $pid, %now };
	}
	return;
}

sub _sample
{
	my ($self, $i, $pid) = @_;
	my %mntr = $self->{zk}->cmd('mntr', $i) =~ /^(\w+)\t(\S+)/mg;
	return unless defined $mntr{zk_proposal_count};
	my ($kb) = slurp_file("/proc/$pid/status") =~ /^VmRSS:\s+(\d+)/m;
	return (cpu => ZklockNode::cpu_of($pid), memory => $kb / 1024, map { $counter{$_} => $mntr{$_} } keys %counter);
}

=item $fleet->connections

The number of connections of each ZooKeeper server.

=item $fleet->table

The phases so far, as a table in Markdown.

=back

=cut

# The connection that asks for the number counts as well.
sub connections
{
	my ($self) = @_;
	return map { $self->{zk}->cmd('mntr', $_) =~ /^zk_num_alive_connections\s+(\d+)/m ? $1 - 1 : 0 } 1 .. $self->{zk}{servers};
}

sub table
{
	my ($self) = @_;
	my $table = <<'END';
| phase | seconds | writes/s | reads/s | kB/s in | kB/s out | CPU | memory | least ahead | in doubt | lost | reconnects: median, 99 %, longest |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |
END
	foreach my $row (@{ $self->{rows} })
	{
		my %r = %$row;
		$table .= sprintf("| %s | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f %% | %s | %s | %d | %d | %s |\n",
			$r{name}, $r{seconds}, (map { $_ / $r{seconds} } $r{writes}, $r{reads}, $r{received} / 1000, $r{sent} / 1000, 100 * $r{cpu}),
			$r{memory} ? sprintf('%.0f MB', $r{memory}) : '', $r{least_ahead} ? sprintf('%.1f s', $r{least_ahead} / 1000) : '', $r{doubted}, $r{lost},
			$r{reconnects} ? "$r{reconnects}: " . join ', ', map { sprintf '%.1f s', $r{"reconnect_$_"} / 1000 } 'p50', 'p99', 'max' : '');
	}
	return $table;
}

# The sessions end like those of a process that dies.
END
{
	my $status = $?;
	foreach my $fleet (@fleets)
	{
		kill 'KILL', $fleet->{pid};
		waitpid $fleet->{pid}, 0;
	}
	$? = $status;
}

1;
