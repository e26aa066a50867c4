
=head1 NAME

PgBouncer - a pooler in front of a server, for TAP tests

=head1 SYNOPSIS

	PgBouncer->program or plan skip_all => 'there is no pgbouncer';
	my $pooler = PgBouncer->new($node, one => 'pool_mode=transaction pool_size=1');
	my $client = $pooler->backend('one');

=cut

package PgBouncer;

use strict;
use warnings;

use Carp;
use POSIX ();
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time usleep);

my @poolers;

=head1 METHODS

=over

=item PgBouncer->program

The path of the program, or undef if it is not installed.

=item PgBouncer->new($node, %databases)

Start one.  C<%databases> has for each pool its name and its entry in C<[databases]>, where
C<dbname> is C<postgres> by default; C<pgbouncer> is added to the section of that name.  The
pooler ends with the test.

=item $pooler->directory, $pooler->port

The pooler listens on a Unix socket in this directory.

=item $pooler->backend($database)

A session through it, as L<ZklockBackend>.

=item $pooler->stop

=back

=cut

sub program
{
	my ($program) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';
	return $program;
}

sub new
{
	my ($class, $node, %databases) = @_;
	my $self = bless {
		node => $node,
		user => 'postgres',
		directory => PostgreSQL::Test::Utils::tempdir_short(),
		port => PostgreSQL::Test::Cluster::get_free_port(),
	}, $class;
	my $more = delete $databases{pgbouncer} // '';
	my $server = 'host=' . $node->host . ' port=' . $node->port . " user=$self->{user}";
	my $pools = join "\n", map { "$_ = $server " . ($databases{$_} =~ /dbname=/ ? '' : 'dbname=postgres ') . $databases{$_} } sort keys %databases;

	append_to_file("$self->{directory}/pgbouncer.ini", <<"END");
[databases]
$pools

[pgbouncer]
listen_addr =
listen_port = $self->{port}
unix_socket_dir = $self->{directory}
auth_type = any
ignore_startup_parameters = extra_float_digits
logfile = $self->{directory}/pgbouncer.log
$more
END
	$self->_start;
	push @poolers, $self;
	return $self;
}

sub _start
{
	my ($self) = @_;
	my $program = program() or croak 'there is no pgbouncer';
	$self->{pid} = fork // croak "could not fork: $!";
	if ($self->{pid} == 0)
	{
		open STDIN, '<', '/dev/null';
		open STDOUT, '>', "$self->{directory}/output";
		open STDERR, '>&', \*STDOUT;
		chdir $self->{directory};
		exec $program, "$self->{directory}/pgbouncer.ini" or POSIX::_exit(127);
	}
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	until (-S "$self->{directory}/.s.PGSQL.$self->{port}")
	{
		croak 'timed out waiting for pgbouncer to listen' if time > $deadline;
		usleep(10_000);
	}
	return;
}

sub directory { my ($self) = @_; return $self->{directory}; }
sub port { my ($self) = @_; return $self->{port}; }

sub backend
{
	my ($self, $database) = @_;
	return $self->{node}->backend(extra_params =>
		  [ '-d', "host=$self->{directory} port=$self->{port} user=$self->{user} dbname=$database" ]);
}

sub stop
{
	my ($self, $signal) = @_;
	my $pid = delete $self->{pid} or return;
	kill $signal // 'INT', $pid;
	waitpid $pid, 0;
	return;
}

# Waiting for children sets $?, which is the exit status of the test here.
END
{
	my $status = $?;
	$_->stop('KILL') foreach @poolers;
	$? = $status;
}

1;
